"""The work of stage 5, index: the gallery of the evaluated model, so that a search need not compare everything."""

from pipelines.config import PipelineConfig
from pipelines.evaluation import GALLERY
from pipelines.retrieval.faiss_index import GalleryIndex, index_origin
from pipelines.retrieval.gallery import Gallery
from pipelines.runtime.stage import Plans, StageReport
from pipelines.stages.index.plan import NAME, stage_dir
from pipelines.tracking import Tracker


def run(config: PipelineConfig, upstream: Plans, tracker: Tracker) -> StageReport:
    """Build the indices of images and captions, and measure the recall of an approximate one.

    Raises StageError if there is no gallery yet.
    """
    stage = stage_dir(config, upstream)
    gallery, model = upstream["evaluate"].output(GALLERY), upstream["train"].output("best")
    config.mirror.pull(upstream["evaluate"].directory)
    config.mirror.pull_folder(model)
    embedded = Gallery.load(gallery)
    index = GalleryIndex.build(embedded.images_BKD, embedded.texts_CD, embedded.biases)
    index.save(stage.create() / NAME, index_origin(model, gallery))
    facts = index.facts()
    tracker.set_tags({"vse.fingerprint": stage.fingerprint})
    tracker.log_metrics({f"index/{items}_recall": each.recall for items, each in facts.items()})
    tracker.log_artifact(stage.path / NAME / "index.json")
    exactness = {
        items: ("exact" if each.kind == "exact" else f"approximate with recall {each.recall:.3f} of the first ten")
        + (", hubs corrected" if each.is_corrected else "")
        for items, each in facts.items()
    }
    summary = "; ".join(f"{each.items:,} {items}, {exactness[items]}" for items, each in facts.items())
    stage.complete({"summary": summary}, [NAME])
    return StageReport(NAME, stage.path, summary)

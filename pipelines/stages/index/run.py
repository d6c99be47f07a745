"""The work of stage 5, index: the gallery of the evaluated model, so that a search need not compare everything."""

from pipelines.config import PipelineConfig
from pipelines.evaluation import GALLERY
from pipelines.registry.models import CORRECTION
from pipelines.retrieval.correction import Correction
from pipelines.retrieval.faiss_index import GalleryIndex, index_origin
from pipelines.retrieval.gallery import Gallery, GalleryError
from pipelines.runtime.stage import Plans, StageError, StageReport
from pipelines.stages.index.plan import NAME, stage_dir
from pipelines.tracking import Tracker
from vse_core.evaluation.hubs import corrected
from vse_core.evaluation.recall import evaluate_retrieval


def run(config: PipelineConfig, upstream: Plans, tracker: Tracker) -> StageReport:
    """Build the indices of images and captions, and measure approximate ones; StageError before a gallery is made."""
    stage = stage_dir(config, upstream)
    gallery, model = upstream["evaluate"].output(GALLERY), upstream["train"].output("best")
    config.mirror.pull(upstream["evaluate"].directory)
    config.mirror.pull_folder(model)
    embedded, compression = Gallery.load(gallery), config.index.compress or ""
    bank = Correction.load(upstream["evaluate"].directory / CORRECTION)
    try:
        index = GalleryIndex.build(embedded.images_BKD, embedded.texts_CD, embedded.biases, compression, bank)
    except GalleryError as error:
        raise StageError(f"index.compress: {error}") from error
    index.save(stage.create() / NAME, index_origin(model, gallery))
    facts = index.facts()
    tracker.log_metrics({f"index/{items}_recall": each.recall for items, each in facts.items()})
    tracker.log_artifact(stage.path / NAME / "index.json")
    summary = "; ".join(f"{each.items:,} {items}, {each}" for items, each in facts.items())
    if compression:
        small, full = index_rsum(index, embedded), gallery_rsum(embedded)
        tracker.log_metrics({"index/rsum": small, "index/rsum_full": full})
        summary = f"{summary}; RSUM {small:.1f} instead of {full:.1f}"
    stage.complete({"summary": summary}, [NAME])
    return StageReport(NAME, stage.path, summary)


def gallery_rsum(gallery: Gallery) -> float:
    """Return the RSUM of a gallery by its full vectors, hubs corrected if it has biases."""
    pair = gallery.images_BKD, gallery.texts_CD
    pair = pair if gallery.biases is None else corrected(*pair, *gallery.biases)
    return evaluate_retrieval(*pair, _counts(gallery)).rsum


def index_rsum(index: GalleryIndex, gallery: Gallery) -> float:
    """Return the RSUM if every item is compared as an index holds it, and every query as it is compared with items."""
    captions = index.images.kept_queries(gallery.texts_CD.unsqueeze(1))[:, 0]
    to_images = evaluate_retrieval(index.images.kept_items(), captions, _counts(gallery))
    images = index.captions.kept_queries(gallery.images_BKD)
    to_captions = evaluate_retrieval(images, index.captions.kept_items()[:, 0], _counts(gallery))
    return to_images.text_to_image.recall_sum + to_captions.image_to_text.recall_sum


def _counts(gallery: Gallery) -> list[int]:
    return [len(record.captions) for record in gallery.records]

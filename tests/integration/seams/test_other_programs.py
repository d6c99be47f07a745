"""Other programs: what transformers and sentence-transformers write today is read as it is, and they read ours."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import AutoModel, AutoTokenizer, PreTrainedTokenizerFast

from pipelines.config import load_config
from pipelines.evaluation.named_models import NamedModel
from pipelines.inference.embedder import Embedder, write_extractor
from pipelines.runtime.stage import content_digest
from pipelines.stages.preflight import check_before_start
from preprocessing.captions.subwords import SubwordTokenizer
from preprocessing.features import build_extractor
from tests.dual_encoders import write_dual_encoder
from tests.pipelines.training.test_text_encoders import bert_text, write_bert
from vse_core.encoders.bert import BertEncoder
from vse_core.pooling import build_pooling

TEXTS = ["a red circle", "two small blue squares", "a square"]


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dual_encoder(tmp_path_factory.mktemp("clip") / "clip", "clip", TEXTS)


def test_a_clip_that_sentence_transformers_has_written_is_evaluated_and_exported(clip: Path, tmp_path: Path) -> None:
    theirs = SentenceTransformer(str(clip), device="cpu", local_files_only=True)
    theirs.save_pretrained(str(tmp_path / "theirs"))
    config = load_config(None, [f"work_dir={tmp_path}/work", "preset=vse_c"])
    found = NamedModel.find(f"hf:{tmp_path}/theirs", config)
    write_extractor(tmp_path / "extractor", "images", {})
    embedder = Embedder(found.model, tmp_path / "extractor", device="cpu")
    expected = torch.nn.functional.normalize(torch.from_numpy(theirs.encode(TEXTS)))
    torch.testing.assert_close(embedder.embed_texts(TEXTS), expected, atol=1e-5, rtol=1e-4)
    ours = PreTrainedTokenizerFast(tokenizer_file=str(found.model / "tokenizer.json"))
    assert ours(TEXTS[0])["input_ids"] == AutoTokenizer.from_pretrained(clip)(TEXTS[0])["input_ids"]


def test_a_text_network_that_sentence_transformers_has_written_reads_captions(tmp_path: Path) -> None:
    bert = write_bert(tmp_path / "bert", dropout=0.0)
    folder = tmp_path / "theirs"
    SentenceTransformer(modules=[Transformer(str(bert)), Pooling(16)], device="cpu").save_pretrained(str(folder))
    check_before_start(load_config(None, [f"work_dir={tmp_path}/work", bert_text(folder)]))
    tokenizer = SubwordTokenizer.from_pretrained(str(folder))
    encoder = BertEncoder(16, build_pooling(name="mean", dim=16), weights=str(folder)).eval()
    tokens_1L = torch.tensor([tokenizer.encode(TEXTS[0])])
    with torch.no_grad():
        expected = AutoModel.from_pretrained(bert).eval()(tokens_1L).last_hidden_state
        torch.testing.assert_close(encoder.bert(input_ids=tokens_1L).last_hidden_state, expected)
    assert tokenizer.encode(TEXTS[0]) == AutoTokenizer.from_pretrained(bert)(TEXTS[0])["input_ids"]


def test_the_tower_of_a_clip_goes_into_a_bundle_with_its_settings_for_images(clip: Path, tmp_path: Path) -> None:
    """Of processor_config.json, in which transformers 5 keeps them; all that identifies it has a part in its digest."""
    write_extractor(tmp_path / "extractor", "patches", {"weights": str(clip)})
    kept = tmp_path / "extractor" / "weights"
    extractor, ours = (build_extractor("patches", weights=str(folder)) for folder in (clip, kept))
    assert ours.identity() == extractor.identity()
    digests = {content_digest(clip)}
    for name in ("processor_config.json", "tokenizer.json", "tokenizer_config.json", "config.json"):
        changed = Path(shutil.copytree(clip, tmp_path / name))
        settings = json.loads((changed / name).read_text())
        (changed / name).write_text(json.dumps(settings | {"note": 1}))
        digests.add(content_digest(changed))
    assert len(digests) == 5

"""A dual encoder in the format of transformers or open_clip: as it was published, with the weights that it has now.

S side of the pixels.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import CLIPImageProcessor, PreTrainedTokenizerFast, SiglipImageProcessor

from pipelines.inference.learned_values import learned_logits
from pipelines.inference.sentence_module import MODULES
from preprocessing.captions.open_clip import OpenClipTokenizer
from preprocessing.captions.subwords import SubwordTokenizer
from vse_core.encoders.dual import DualImageEncoder, DualTextEncoder, joined_network
from vse_core.encoders.open_clip import OpenClip
from vse_core.encoders.pretrained import quiet_transformers
from vse_core.models import Model

# What sentence-transformers loads the same folder with: its own modules, and the methods that they call.
_SENTENCE_MODULES = ("", "transformer.Transformer"), ("1_Normalize", "normalize.Normalize")
_METHODS = {
    kind: {"method": f"get_{kind}_features", "method_output_name": "pooler_output"} for kind in ("text", "image")
}


def write_published(
    model: Model, directory: Path, folder: Path, logits: Mapping[str, float] | None = None
) -> str | None:
    """Write config, safetensors, tokenizer and settings for images; return whose format it is, None for other models.

    `directory` is that of the model, with its tokenizer and, unless `logits` are given, what its loss has learned.
    transformers' `AutoModel`, `AutoProcessor` and the model's own classes load the folder.
    """
    images, texts = model.image_encoder, model.text_encoder
    if not (isinstance(images, DualImageEncoder) and isinstance(texts, DualTextEncoder)):
        return None
    logits = learned_logits(directory) if logits is None else logits
    network = joined_network(images, texts, logits)
    if isinstance(network, OpenClip):
        network.save_pretrained(folder, images.rebuilt_by["pixels"])
        OpenClipTokenizer.load(directory / OpenClipTokenizer.FILE).write_files(folder)
        return "open_clip"
    with quiet_transformers():
        network.save_pretrained(folder)
    _image_processor(images).save_pretrained(folder)
    tokenizer = Tokenizer.from_file(str(directory / SubwordTokenizer.FILE))
    padding: Any = tokenizer.padding
    _library_tokenizer(tokenizer, texts.tower.config.max_position_embeddings).save_pretrained(folder)
    _write_modules(folder, pads=padding["length"] is not None)
    return "transformers"


def _write_modules(folder: Path, pads: bool) -> None:
    """Write what sentence-transformers reads; captions are padded to all positions if the tower was trained so."""
    modules = [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.base.modules.{name}"}
        for place, (path, name) in enumerate(_SENTENCE_MODULES)
    ]
    settings: dict[str, Any] = {"modality_config": _METHODS, "module_output_name": "sentence_embedding"}
    if pads:
        settings["processing_kwargs"] = {"text": {"padding": "max_length"}}
    for file, content in ((MODULES, modules), ("sentence_bert_config.json", settings)):
        (folder / file).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _image_processor(images: DualImageEncoder) -> Any:
    """Return what makes S x S pixels of an image as the model was given them."""
    mean, std = ([value / 255 for value in given.flatten().tolist()] for given in (images.mean, images.std))
    square = {"height": images.image_size, "width": images.image_size}
    if images.view == "crop":
        size = {"shortest_edge": images.image_size}
        return CLIPImageProcessor(size=size, crop_size=square, image_mean=mean, image_std=std)
    return SiglipImageProcessor(size=square, image_mean=mean, image_std=std)


def _library_tokenizer(tokenizer: Tokenizer, positions: int) -> PreTrainedTokenizerFast:
    """Return the library's tokenizer around a saved one; its special tokens are those that it puts around a text."""
    padding: Any = tokenizer.padding
    tokenizer.no_padding()
    around = tokenizer.encode("").tokens
    specials = {"pad_token": tokenizer.id_to_token(padding["pad_id"])}
    specials |= {"unk_token": getattr(tokenizer.model, "unk_token", None)}  # SentencePiece's has none by name
    specials |= {"bos_token": around[0]} if len(around) > 1 else {}
    specials |= {"eos_token": around[-1]} if around else {}
    options: dict[str, Any] = {name: token for name, token in specials.items() if token is not None}
    if padding["length"] is not None:  # padding is part of a caption, which no mask may hide
        options["model_input_names"] = ["input_ids"]
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=positions, **options)

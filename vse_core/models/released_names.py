"""Names of tensors in released checkpoints, and what they are here.

Each entry is a pattern for an official name and its replacement, None for tensors that the released code stores but
never uses; the first match counts.
"""

import re

from vse_core.encoders.resnet import RELEASED_MODULES

Names = tuple[tuple[str, str | None], ...]

# VSE-infinity names its modules `fc`, `mlp`, `gpool`; with a network in front `backbone`, `image_encoder`. VSE+2AD says
# `pool` and `img_proj`, and its patch models `vit_model`.
IMAGE_NAMES: Names = (
    (r"fc\.(\w+)", r"image_encoder.fc.\1"),
    (r"mlp\.layers\.0\.(\w+)", r"image_encoder.mlp.hidden.\1"),
    (r"mlp\.layers\.1\.(\w+)", r"image_encoder.mlp.out.\1"),
    (r"mlp\.bns\.0\.(\w+)", r"image_encoder.mlp.norm.\1"),
    (r"mlp\.bns\.1\.\w+", None),
    (r"(?:gpool|pool)\.(.+)", r"image_encoder.pooling.\1"),
    (r"(?:image_encoder|img_proj)\.fc\.(\w+)", r"image_encoder.head.fc.\1"),
    (r"(?:image_encoder|img_proj)\.(?:gpool|pool)\.(.+)", r"image_encoder.head.pooling.\1"),
    (r"img_proj\.mlp\..+", None),
    (r"backbone\.resnet\.fc\.\w+", None),
    (r"backbone\.resnet\.(.+)", r"image_encoder.backbone.\1"),
    *(
        (rf"backbone\.{re.escape(theirs)}\.(.+)", rf"image_encoder.backbone.{ours}.\1")
        for theirs, ours in RELEASED_MODULES.items()
    ),
    # ViT's names before and since transformers 5.
    (
        r"vit_model\.encoder\.layer\.(\d+)\.attention\.attention\.(q|k|v)(?:uery|ey|alue)\.(\w+)",
        r"image_encoder.backbone.layers.\1.attention.\2_proj.\3",
    ),
    (
        r"vit_model\.encoder\.layer\.(\d+)\.attention\.output\.dense\.(\w+)",
        r"image_encoder.backbone.layers.\1.attention.o_proj.\2",
    ),
    (r"vit_model\.encoder\.layer\.(\d+)\.intermediate\.dense\.(\w+)", r"image_encoder.backbone.layers.\1.mlp.fc1.\2"),
    (r"vit_model\.encoder\.layer\.(\d+)\.output\.dense\.(\w+)", r"image_encoder.backbone.layers.\1.mlp.fc2.\2"),
    (
        r"vit_model\.encoder\.layer\.(\d+)\.(layernorm_(?:before|after))\.(\w+)",
        r"image_encoder.backbone.layers.\1.\2.\3",
    ),
    (r"vit_model\.((?:embeddings|layernorm|pooler|layers)\..+)", r"image_encoder.backbone.\1"),
)

# VSE-infinity projects BERT's states by `linear`, VSE+2AD by `fc`.
TEXT_NAMES: Names = (
    (r"embed\.weight", r"text_encoder.embed.weight"),
    (r"rnn\.(\w+)", r"text_encoder.rnn.\1"),
    (r"bert\.pooler\..+", None),
    (r"bert\.embeddings\.position_ids", None),
    (r"bert\.(.+)", r"text_encoder.bert.\1"),
    (r"(?:linear|fc)\.(\w+)", r"text_encoder.linear.\1"),
    (r"(?:gpool|pool)\.(.+)", r"text_encoder.pooling.\1"),
)

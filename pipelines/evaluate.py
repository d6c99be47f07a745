r"""Evaluate a model on a split: recalls both ways, every query, contact sheets and the learned pooling weights.

As a stage it takes the best checkpoint of the configured training run:

    python pipelines/evaluate.py --config pipelines/config/data/flickr8k.yaml

With a model given it evaluates that one, a model directory or a registered model, on any split of the configured data:

    python pipelines/evaluate.py --config pipelines/config/data/flickr8k.yaml --model models:/flickr8k/1 --split dev

Every metric has its 95 % interval, and every query its row in a table. The protocols of the papers come on top by
name, if the split is the published one: flickr8k_1k, flickr30k_1k, coco_1k, coco_5k, msr_vtt, vatex, and cxc,
which wants the folder of Crisscrossed Captions (evaluation.cxc):

    python pipelines/evaluate.py --config pipelines/config/data/coco.yaml --model coco/1 --split test \
        --protocol coco_1k --protocol coco_5k

So do UniVSE's, of any split: retrieval under adversarial captions, of images by objects, attributes and relations, and
the resolution of dependencies by images:

    python pipelines/evaluate.py --config pipelines/config/data/flickr8k.yaml --model flickr8k/1 --protocol attack

A pretrained CLIP or SigLIP is a model too, by its folder or its name on the hub:

    python pipelines/evaluate.py --config pipelines/config/data/flickr8k.yaml --model hf:openai/clip-vit-base-patch32 \
        --protocol attack

With several models it also evaluates their ensemble, the mean of their similarities. Models of other features of the
same images name the configuration of these features, and the split if it has another name there:

    python pipelines/evaluate.py --config regions.yaml --model regions/1 --model regions/2 --model grids/1 grids.yaml

Regions, grids and patches on COCO's 5,000 test images, "testall" in the files of published regions:

    python pipelines/evaluate.py --protocol coco_5k --model regions/1 regions.yaml testall \
        --model grids/1 grids.yaml test --model patches/1 patches.yaml test
"""

import _repository  # noqa: F401

from pipelines.evaluation.commands import evaluate_main
from pipelines.runtime.cli import run_command

if __name__ == "__main__":
    run_command(evaluate_main)

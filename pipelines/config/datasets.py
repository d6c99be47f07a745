"""Settings of the data sets: one class a format."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from pipelines.schema.fields import AbsolutePath, Address, Int, Strict, in_its_folder, local_or_s3
from pipelines.schema.variants import Variants
from preprocessing.shares import parse_share


def _unless_share(address: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: address(value) if parse_share(value) is None else str(value)


_TableOrShare = Annotated[
    str, AfterValidator(_unless_share(local_or_s3)), BeforeValidator(_unless_share(in_its_folder))
]


class DatasetSettings(Strict):
    """Keys of every data set, whatever its format."""

    train_split: str = Field("train", description="split that is trained on; the vocabulary comes from it alone")
    eval_split: str = Field("dev", description="split that models are selected on, never the test split")

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of `preprocessing.datasets.build_dataset` besides the format."""
        return self.model_dump(mode="json", exclude={"format", "train_split", "eval_split"})


class FlickrDataset(DatasetSettings):
    """Flickr8k or Flickr30k as published: a folder of images, a token file, one file of names for each split."""

    format: Literal["flickr"]
    images: Address = Field(description="folder of the images: a path, or s3://bucket/folder")
    tokens: AbsolutePath = Field(description="captions, one `NAME.jpg#N<TAB>caption` a line")
    splits: dict[str, AbsolutePath] = Field(description="split -> file of image names, one a line", min_length=1)


class KarpathyDataset(DatasetSettings):
    """Karpathy and Fei-Fei's JSON for Flickr8k, Flickr30k and COCO (dataset_*.json)."""

    format: Literal["karpathy"]
    images: Address = Field(description="folder of the images, or s3://bucket/folder; the JSON names COCO's subfolders")
    annotations: AbsolutePath = Field(description="dataset_flickr8k.json, dataset_flickr30k.json or dataset_coco.json")
    restval: bool = Field(True, description="train on COCO's restval too (113,287 images; UniVSE: 82,783)")
    instances: tuple[AbsolutePath, ...] = Field(
        (), description="COCO's instances_*.json, for UniVSE's retrieval by objects"
    )


class TableDataset(DatasetSettings):
    """Tables with a row for each image or caption, in any order."""

    format: Literal["table"]
    tables: dict[str, _TableOrShare] = Field(
        description="split -> .csv, .tsv, .jsonl (also .gz) or .parquet, here or on S3, or a share of the images of "
        "the first split with a table: 10 %",
        min_length=1,
    )
    images: Address | None = Field(
        None, description="folder of the images, or s3://bucket/folder; by default that of their table"
    )
    image_column: str = Field("image", description="name of the images' column")
    caption_column: str | tuple[str, ...] = Field(
        "caption", description="name of the captions' column, or of several; a value may be a list of captions"
    )
    split_column: str | None = Field(
        None,
        exclude_if=lambda column: column is None,
        description="column with the split of each row, of tables that hold several splits",
    )
    share_seed: Int = Field(
        0, ge=0, exclude_if=lambda seed: seed == 0, description="another seed, other images in the shares"
    )

    @property
    def caption_columns(self) -> tuple[str, ...]:
        """The columns of captions."""
        return (self.caption_column,) if isinstance(self.caption_column, str) else self.caption_column

    def table_of(self, split: str) -> str:
        """Return the table that the images of a split are in."""
        return next(table for table in (self.tables[split], *self.tables.values()) if parse_share(table) is None)

    def _misfits(self) -> Iterator[str]:
        shares = [parse_share(table) is not None for table in self.tables.values()]
        if self.split_column and any(shares):
            yield "split_column: has no effect on shares, which are of all rows; leave one of the two out"
        if self.share_seed and not any(shares):
            yield "share_seed: has no effect unless a table is a share of another one; leave it out"
        if all(shares):
            yield "tables: all splits are shares; name the table of one of them"


class ImageShardsDataset(DatasetSettings):
    """WebDataset shards as img2dataset writes them: tar archives of KEY.jpg with KEY.txt or KEY.json."""

    format: Literal["webdataset"]
    folders: dict[str, Address] = Field(description="split -> folder of archives, or s3://bucket/folder", min_length=1)


class PrecomputedDataset(DatasetSettings):
    """Region features as SCAN and VSE-infinity released them: {split}_ims.npy, {split}_caps.txt, {split}_ids.txt."""

    format: Literal["precomputed"]
    root: AbsolutePath = Field(description="folder of these files")
    images: Address | None = Field(
        None,
        description="folder of the photographs, or s3://bucket/folder, for contact sheets and figures alone; "
        "id_mapping.json next to `root` names them",
    )

    @property
    def names_file(self) -> Path:
        """The JSON file that names the photographs: image id -> name in `images`."""
        return self.root.parent / "id_mapping.json"

    def options(self) -> dict[str, Any]:
        """Return the keyword arguments of the reader, which needs no photographs."""
        return {"root": str(self.root)}


class HgrDataset(DatasetSettings):
    """Videos as HGR released MSR-VTT and VATEX: public_split/, annotation/RET/ and ordered_feature/ of one folder."""

    format: Literal["hgr"]
    root: AbsolutePath = Field(description="folder of the data set, such as MSRVTT")
    network: str = Field(min_length=1, description="folder of the features in ordered_feature/SA (resnet152.pth)")


class ScenesDataset(DatasetSettings):
    """Generated images of coloured shapes with five captions each: the embedded default, which needs no files."""

    format: Literal["scenes"]
    seed: Int = Field(0, ge=0, description="another seed, other scenes")
    images: dict[str, Annotated[Int, Field(gt=0, le=1_000_000)]] = Field(
        description="split -> their number", min_length=1
    )


Dataset = Annotated[
    FlickrDataset
    | KarpathyDataset
    | TableDataset
    | ImageShardsDataset
    | PrecomputedDataset
    | HgrDataset
    | ScenesDataset,
    Variants("format", "format"),
]

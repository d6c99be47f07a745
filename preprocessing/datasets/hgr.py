"""Reader of the layout in which HGR released MSR-VTT, VATEX and other sets of videos: names, captions, features."""

from collections.abc import Iterator
from pathlib import Path

from preprocessing.datasets.checks import load_array, read_json_object, require_file, require_folder, require_new
from preprocessing.datasets.record import Caption, DatasetError, Record

_CAPTIONS = Path("annotation", "RET", "ref_captions.json")
_NAMES = Path("public_split")
_NAMES_ENDING = "_names.npy"


class HgrDataset:
    """Videos as HGR (Chen et al., CVPR 2020) released them, and as VSE-infinity's video experiments read them.

        annotation/RET/ref_captions.json              video -> its captions
        public_split/SPLIT_names.npy                  names of a split's videos (trn, val, tst)
        ordered_feature/SA/NETWORK/SPLIT_ft.hdf5      video -> its frames, one vector each

    A record is a video; its id is its name, a caption's id ``NAME#N``. Only names and captions are read here: features
    are taken by the extractor ``precomputed``, which skips a video that the file of frames lacks. `root` is the folder
    that holds these, `network` a folder's name (``resnet152.pth``).
    """

    def __init__(self, root: str | Path, network: str) -> None:
        folder = require_folder(root, "hgr dataset, 'root'")
        self.root = str(folder)
        self._names = folder / _NAMES
        self._captions = require_file(folder / _CAPTIONS, "hgr dataset, 'root'")
        self._features = require_folder(folder / "ordered_feature" / "SA" / network, "hgr dataset, 'network'")
        names = sorted(self._names.glob(f"*{_NAMES_ENDING}"))
        if not names:
            raise DatasetError(f"hgr dataset, 'root': no SPLIT{_NAMES_ENDING} in {self._names}; name one set's folder")
        self.splits = tuple(path.name.removesuffix(_NAMES_ENDING) for path in names)

    def records(self, split: str) -> Iterator[Record]:
        """Yield the records of a split, one a video, in the order of its names."""
        names = _names(self._names / f"{split}{_NAMES_ENDING}")
        captions = read_json_object(self._captions)
        features = require_file(self._features / f"{split}_ft.hdf5", f"features of split {split!r}")
        for name in names:
            texts = captions.get(name)
            if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
                where = f"{self._captions}, video {name!r}"
                raise DatasetError(f"{where}: {texts!r:.80} where a list of captions is needed")
            of_video = tuple(Caption(f"{name}#{number}", text) for number, text in enumerate(texts))
            # HDF5 takes a slash for a group's: the release has an underscore in its place.
            yield Record(name, f"{features}#{name.replace('/', '_')}", split, of_video)


def _names(file: Path) -> list[str]:
    names = load_array(require_file(file, "hgr dataset"), "names of videos, an array of text, are", "U", [1])
    seen: dict[str, str] = {}
    for row, name in enumerate(names.tolist()):
        require_new(seen, "video", name, f"{file}, row {row}")
    if not seen:
        raise DatasetError(f"{file}: it names no video")
    return list(seen)

"""HDF5 files and LMDB stores, whole and damaged."""

import base64
import io
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from preprocessing.features.extractor import ExtractorError
from preprocessing.features.images import ImageError
from preprocessing.features.importers import PublishedRegions, entries, open_source
from preprocessing.features.plain_pickle import read_plain

h5py = pytest.importorskip("h5py", reason="pip install h5py")
lmdb = pytest.importorskip("lmdb", reason="pip install lmdb")

FEATURES = np.arange(6, dtype=np.float32).reshape(2, 3)
BOXES = np.array([[0, 1, 2, 3], [4, 5, 6, 7]], dtype=np.float32)


class Attack:
    def __reduce__(self) -> Any:
        return (exec, ("raise SystemExit('executed')",))


def by_id(path: Path, form: str) -> dict[str, PublishedRegions | ImageError]:
    return dict(entries(open_source(path, form)))


def test_hdf5_of_frames_and_of_groups(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "features.hdf5", "w") as file:
        file["video7"] = FEATURES
        file["42/features"] = FEATURES.astype(np.float16)
        file["42/boxes"] = BOXES
        file["flat"] = FEATURES[0]
        file["whole"] = np.zeros((2, 2), dtype=np.int32)
        file["words"] = "a text"
        file["other/boxes"] = BOXES
        file["wrong/features"] = FEATURES
        file["wrong/boxes"] = BOXES[:1]
        file.create_dataset("huge", shape=(1 << 20, 2048), dtype="f4")  # takes no space on disk
    found = by_id(tmp_path / "features.hdf5", "hdf5")
    frames, regions = found["video7"], found["42"]
    assert isinstance(frames, PublishedRegions)
    assert isinstance(regions, PublishedRegions)
    assert frames.regions.features.tolist() == FEATURES.tolist() == regions.regions.features.tolist()
    assert frames.regions.companions == {}
    assert regions.regions.companions["boxes"].tolist() == BOXES.tolist()
    reasons = {name: str(entry) for name, entry in found.items() if isinstance(entry, ImageError)}
    assert reasons == {
        "flat": "features are float32 of shape (3,), floats of shape (N, F) are needed",
        "whole": "features are int32 of shape (2, 2), floats of shape (N, F) are needed",
        "words": "object of shape () is no set of vectors or boxes",
        "other": "a group of boxes; 'features' is needed",
        "wrong": "boxes are float32 of shape (1, 4), finite numbers (2, 4) are needed",
        "huge": "float32 of shape (1048576, 2048) is no set of vectors or boxes",
    }


def test_hdf5_files_that_are_damaged(tmp_path: Path) -> None:
    path = tmp_path / "features.hdf5"
    with h5py.File(path, "w") as file:
        for number in range(20):
            file.create_dataset(str(number), data=FEATURES + number, fletcher32=True)
    whole = path.read_bytes()
    for content in (b"", b"no such file", whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(ExtractorError, match="cannot be read as an HDF5 file"):
            open_source(path, "hdf5")
    changed = whole.replace((FEATURES + 7).tobytes(), (FEATURES + 99).tobytes())
    assert changed != whole
    path.write_bytes(changed)
    found = by_id(path, "hdf5")
    assert [name for name, entry in found.items() if isinstance(entry, ImageError)] == ["7"]
    assert len(found) == 20


def npz(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def vilbert(**changes: Any) -> dict[str, Any]:
    return {
        "image_id": "42",
        "image_w": 640,
        "image_h": 480,
        "num_boxes": 2,
        "boxes": base64.b64encode(BOXES.tobytes()),
        "features": base64.b64encode(FEATURES.tobytes()),
    } | changes


def store(path: Path, values: dict[str, bytes]) -> Path:
    with lmdb.open(str(path), map_size=1 << 24) as environment, environment.begin(write=True) as transaction:
        for name, value in values.items():
            transaction.put(name.encode(), value)
    return path


def test_lmdb_of_npz_and_of_plain_pickles(tmp_path: Path) -> None:
    text = {name: value.decode() if isinstance(value, bytes) else value for name, value in vilbert().items()}
    values = {
        "1": npz(x=FEATURES, bbox=BOXES, image_w=640, image_h=480),
        "2": pickle.dumps(vilbert(), protocol=4),
        "3": pickle.dumps(text, protocol=0),  # as Python 2 wrote them
        "4": pickle.dumps(vilbert(), protocol=2),
        "keys": pickle.dumps([b"1", b"2", b"3", b"4"]),
    }
    found = by_id(store(tmp_path / "store", values), "lmdb")
    assert list(found) == ["1", "2", "3", "4"]
    for entry in found.values():
        assert isinstance(entry, PublishedRegions)
        assert entry.regions.features.tolist() == FEATURES.tolist()
        assert entry.regions.companions["boxes"].tolist() == BOXES.tolist()
        assert entry.image_size == (640, 480)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (pickle.dumps(Attack()), "a pickle of plain values (it asks for builtins.exec, which no plain values need"),
        (pickle.dumps(vilbert(extra=Attack())), "it asks for builtins.exec"),
        (pickle.dumps(vilbert(features=FEATURES)), "it asks for numpy"),
        (b"c_codecs\nencode\n(Vtext\nVutf8\ntR.", "bytes in the encoding 'utf8'; latin1 is needed"),
        (b"Pelsewhere\n.", "refers to 'elsewhere'"),
        (pickle.dumps([1, 2]), "a list where a dictionary is needed"),
        (pickle.dumps({"boxes": 1}), "a dictionary without features, num_boxes"),
        (pickle.dumps(vilbert(num_boxes="2")), "num_boxes is '2'"),
        (pickle.dumps(vilbert(num_boxes=4)), "6 numbers of features and 8 of boxes for 4 boxes"),
        (pickle.dumps(vilbert(boxes=7)), "boxes is a int"),
        (pickle.dumps(vilbert(features=b"?")), "features: no base64"),
        (pickle.dumps(vilbert(features=base64.b64encode(b"12345"))), "features: no base64 of float32"),
        (pickle.dumps(vilbert())[:-20], "neither an npz file nor a pickle of plain values"),
        (b"", "neither an npz file nor a pickle"),
        (b"whatever", "neither an npz file nor a pickle"),
        (npz(x=FEATURES)[:-30], "not a readable npz file"),
        (npz(y=FEATURES), "there is no array 'x'"),
    ],
)
def test_lmdb_values_that_cannot_be_used(tmp_path: Path, value: bytes, reason: str) -> None:
    found = by_id(store(tmp_path / "store", {"1": value, "2": npz(x=FEATURES)}), "lmdb")
    assert isinstance(found["2"], PublishedRegions)
    entry = found["1"]
    assert isinstance(entry, ImageError)
    assert reason in str(entry)
    assert "\n" not in str(entry)


def test_no_mutation_of_a_pickle_gets_anything_executed() -> None:
    whole = pickle.dumps(vilbert(), protocol=2)
    generator = np.random.default_rng(0)
    refused = 0
    for _ in range(300):
        changed = bytearray(whole)
        for _ in range(generator.integers(1, 4)):
            changed[generator.integers(len(whole))] = generator.integers(256)
        refused += 1
        with suppress(Exception):  # anything else would end the test
            read_plain(bytes(changed))
            refused -= 1
    assert 100 < refused < 300


def test_lmdb_stores_that_are_damaged(tmp_path: Path) -> None:
    path = store(tmp_path / "store", {str(number): npz(x=FEATURES) for number in range(50)})
    data = path / "data.mdb"
    whole = data.read_bytes()
    (tmp_path / "one_file.lmdb").write_bytes(whole)
    assert len(by_id(tmp_path / "one_file.lmdb", "lmdb")) == 50
    data.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ExtractorError, match=r"data\.mdb was cut short: .* bytes; download it again"):
        open_source(path, "lmdb")
    data.write_bytes(b"no store" * 4096)
    with pytest.raises(ExtractorError, match="cannot be read as an LMDB store"):
        open_source(path, "lmdb")
    data.unlink()
    with pytest.raises(ExtractorError, match=r"holds no data\.mdb"):
        open_source(path, "lmdb")

"""Hostile files of tensors: neither reader runs anything in them or takes more memory than they have bytes."""

import io
import pickle
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from preprocessing.features import weights
from preprocessing.features.extractor import ExtractorError
from tests.custom_code import Hostile
from vse_core import tensor_files
from vse_core.tensor_files import TensorFileError, read_tensor_file

READERS = {"checkpoints": read_tensor_file, "weights": weights.read_weights}
HUGE = b"\x8a\x05" + struct.pack("<q", 1 << 33)[:5]
CALL = b"\x80\x02%s(" + HUGE + b"tR."
CALLS = {
    "a bytearray": CALL % b"c__builtin__\nbytearray\n",
    "a tensor of a size": CALL % b"ctorch\nFloatTensor\n",
    "a storage of a size": CALL % b"ctorch.storage\nUntypedStorage\n",
    "a text encoded again and again": b"\x80\x02" + b"c_codecs\nencode\nX\x04\0\0\0textX\x06\0\0\0utf-32\x86R." * 2,
    "code": pickle.dumps(print, protocol=2),
}


def zipped(data: bytes, method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in (("data.pkl", data), ("byteorder", b"little"), ("version", b"3\n")):
            archive.writestr(f"archive/{name}", content)
    return buffer.getvalue()


def old(data: bytes) -> bytes:
    """As torch wrote before 1.6: the contents are the fourth of five pickles."""
    return b"".join(pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, {})) + data


FILES = {
    **{f"{name}, {form.__name__}": form(data) for name, data in CALLS.items() for form in (zipped, old)},
    "a call in place of the magic number": CALLS["a bytearray"],
    "an old file with a harmless archive at its end": old(CALLS["a bytearray"]) + zipped(b"\x80\x02N."),
    "compressed": zipped(b"\x80\x02" + b"N" * 10_000 + b".", zipfile.ZIP_DEFLATED),
    "a text of 4 GB": zipped(b"\x80\x02X\xff\xff\xff\xff."),
    "a number of 2 GB": zipped(b"\x80\x02\x8b\xff\xff\xff\x7f."),
    "bytes of 2^62": old(b"\x80\x05\x8e" + struct.pack("<q", 1 << 62) + b"."),
    "empty": b"",
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", FILES)
def test_a_hostile_file_costs_nothing(tmp_path: Path, name: str, reader: str) -> None:
    read: Callable[[Path], Any] = READERS[reader]
    (tmp_path / "x.pth").write_bytes(FILES[name])
    tracemalloc.start()
    try:
        with pytest.raises((TensorFileError, ExtractorError), match="read as tensors alone"):
            read(tmp_path / "x.pth")
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("form", ["zip", "legacy", "pickle"])
def test_code_in_a_file_is_not_run(tmp_path: Path, form: str, reader: str) -> None:
    made, file = tmp_path / "made", tmp_path / "hostile.pth"
    content = {"model": [{}, {}], "opt": Hostile(made)}
    if form == "pickle":
        file.write_bytes(pickle.dumps(content, protocol=2))
    else:
        torch.save(content, file, _use_new_zipfile_serialization=form == "zip")
    message = (
        r"tensors alone \(it asks for 'os.makedirs'.* which no tensors need.*; nothing in (it|the file) was executed"
    )
    with pytest.raises((TensorFileError, ExtractorError), match=message):
        READERS[reader](file)
    assert not made.exists()


@pytest.mark.parametrize("reader", READERS)
def test_memory_that_runs_out_is_told_before_the_file_is_blamed(
    tmp_path: Path, reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save({"a": torch.ones(2)}, tmp_path / "x.pth")
    monkeypatch.setattr(torch, "load", Mock(side_effect=RuntimeError("can't allocate memory: 9 bytes")))
    with pytest.raises((TensorFileError, ExtractorError), match=r"^memory ran out.*: free some and try again"):
        READERS[reader](tmp_path / "x.pth")


@pytest.mark.parametrize("form", ["new", "old"])
@pytest.mark.parametrize("reader", READERS)
def test_tensors_are_read_and_those_that_claim_more_than_was_stored_refused(
    tmp_path: Path, form: str, reader: str
) -> None:
    state = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.nn.Parameter(torch.ones(2, dtype=torch.float16))}
    torch.save({"model": state}, tmp_path / "x.pth", _use_new_zipfile_serialization=form == "new")
    found = READERS[reader](tmp_path / "x.pth")["model"]
    assert found["a"].equal(state["a"])
    assert found["b"].equal(state["b"])
    claimed = {"a": torch.zeros(1).expand(1 << 20, 1 << 20)}
    torch.save(claimed, tmp_path / "x.pth", _use_new_zipfile_serialization=form == "new")
    claimed = READERS[reader](tmp_path / "x.pth")
    assert claimed["a"].numel() == 1 << 40
    for is_state in (tensor_files.is_state, weights.is_state):
        assert is_state(found)
        assert not is_state(claimed)

"""Frames of videos that are encoded here: which are taken, how they look, and what is said of damaged files."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from preprocessing.features import TINY_RESNET, build_extractor
from preprocessing.features.images import ImageError
from tests.preprocessing.features.arrays import arrays

av = pytest.importorskip("av", reason="pip install av")
from preprocessing.features.frames import decode_frames  # noqa: E402 (needs av)


def encoded(frames: int = 30, container: str = "mp4", codec: str = "mpeg4", rate: int = 10) -> bytes:
    """A video whose frame number n is everywhere of the grey level 8 n, but for a white upper left corner."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container) as output:
        stream: Any = output.add_stream(codec, rate=rate)
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        for number in range(frames):
            picture = np.full((64, 96, 3), 8 * number, dtype=np.uint8)
            picture[:32, :48] = 255
            for packet in stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")):
                output.mux(packet)
        for packet in stream.encode():
            output.mux(packet)
    return buffer.getvalue()


def numbers(pictures: list[Image.Image]) -> list[int]:
    return [round(picture.getpixel((90, 60))[0] / 8) for picture in pictures]


def nearest(found: list[int], expected: list[int]) -> bool:
    """Coding changes grey levels by a little: at most to those of the next frame."""
    return len(found) == len(expected) and all(abs(a - b) <= 1 for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("container", "codec"), [("mp4", "mpeg4"), ("mp4", "libx264"), ("matroska", "libx264"), ("avi", "mpeg4")]
)
def test_frames_are_the_middles_of_equal_parts(container: str, codec: str) -> None:
    data = encoded(30, container, codec)
    for count, expected in [(1, [15]), (2, [7, 22]), (3, [5, 15, 25]), (4, [3, 11, 18, 26])]:
        assert nearest(numbers(decode_frames(data, count)), expected), (count, numbers(decode_frames(data, count)))
    assert nearest(numbers(decode_frames(data, 30)), list(range(30)))
    short = decode_frames(encoded(3, container, codec), 12)
    assert nearest(numbers(short), [0, 1, 2])
    assert {picture.size for picture in short} == {(96, 64)}
    assert {picture.mode for picture in short} == {"RGB"}


def test_frames_that_a_cut_has_left_do_not_count() -> None:
    """As `ffmpeg -ss 1 -c copy` cuts: pictures before the cut stay, for others to be decoded by, and are not shown."""
    data, cut = io.BytesIO(encoded(30, "mp4", "libx264")), io.BytesIO()
    with av.open(data) as whole, av.open(cut, "w", format="mp4", options={"avoid_negative_ts": "0"}) as output:
        stream = output.add_stream_from_template(whole.streams.video[0])
        for packet in whole.demux(video=0):
            if packet.size:
                packet.pts, packet.dts = (time - int(1 / packet.time_base) for time in (packet.pts, packet.dts))
                packet.stream = stream
                output.mux(packet)
    with av.open(io.BytesIO(cut.getvalue())) as shown:
        expected = len(list(shown.decode(video=0)))
    assert expected < 30
    found = numbers(decode_frames(cut.getvalue(), 2))
    first = 30 - expected
    assert nearest(found, [first + expected // 4, first + 3 * expected // 4])
    assert len(decode_frames(cut.getvalue(), 12)) == 12


def test_a_video_filmed_lying_on_its_side_is_turned() -> None:
    """The matrix of an MP4's track header: x' = -y, y' = x is a quarter turn clockwise on the screen."""
    one, minus_one, w = 0x00010000.to_bytes(4), (-0x00010000).to_bytes(4, signed=True), 0x40000000.to_bytes(4)
    zero = bytes(4)
    plain = one + zero * 3 + one + zero * 3 + w
    turned = zero + one + zero + minus_one + zero * 4 + w
    data = encoded()
    at = data.index(plain, data.index(b"tkhd"))
    (picture,) = decode_frames(data[:at] + turned + data[at + len(plain) :], 1)
    assert picture.size == (64, 96)
    # The white corner was at the upper left: a quarter turn clockwise brings it to the upper right.
    corners = [picture.getpixel(place)[0] > 200 for place in ((5, 5), (58, 5), (5, 90), (58, 90))]
    assert corners == [False, True, False, False]


@pytest.mark.parametrize("container", ["mp4", "matroska", "avi"])
def test_a_video_cut_short_is_told(container: str) -> None:
    whole = encoded(30, container)
    for share in (0.02, 0.3, 0.6, 0.75):
        with pytest.raises(ImageError) as caught:
            decode_frames(whole[: int(share * len(whole))], 4)
        assert "\n" not in str(caught.value)


def sound() -> bytes:
    """A file of sound alone."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="wav") as output:
        stream: Any = output.add_stream("pcm_s16le", rate=8000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 800), dtype=np.int16), format="s16", layout="mono")
        frame.rate = 8000
        for packet in [*stream.encode(frame), *stream.encode()]:
            output.mux(packet)
    return buffer.getvalue()


def test_what_is_no_video(tmp_path: Path) -> None:
    cases = {b"": "damaged video", b"no video at all" * 100: "damaged video", sound(): "has no video stream"}
    for data, reason in cases.items():
        with pytest.raises(ImageError, match=reason):
            decode_frames(data, 4)
    with pytest.raises(ImageError, match="no such file"):
        build_extractor("frames", weights=TINY_RESNET, seed=0).load(str(tmp_path / "gone.mp4"))


def test_a_frame_is_the_average_of_its_cells(tmp_path: Path) -> None:
    path = tmp_path / "video7.mp4"
    path.write_bytes(encoded())
    extractor = build_extractor("frames", weights=TINY_RESNET, seed=0, frames=3)
    grid = build_extractor("grid", weights=TINY_RESNET, seed=0)
    (found,) = extractor([extractor.load(str(path))])
    assert found.shape == (3, 192)
    assert found.dtype == np.float16
    for row, picture in zip(found, decode_frames(path.read_bytes(), 3), strict=True):
        picture.save(tmp_path / "frame.png")
        (cells,) = arrays(grid, [grid.load(str(tmp_path / "frame.png"))])
        np.testing.assert_allclose(row, cells.astype(np.float32).mean(0), rtol=4e-3, atol=2e-3)
    assert extractor.name == "frames"
    assert extractor.identity() == {**grid.identity(), "extractor": "frames", "version": 2, "frames": 3}

"""Sound, film and pictures of many pixels: read by others, or by their own format's rules."""

from __future__ import annotations

import base64
import io
import struct
import wave
import zlib
from collections.abc import Iterator
from itertools import pairwise

from heavylift.media import media_url, plain_avi, tone_wav, wide_png


def chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The chunks of a RIFF list: kind and content; lengths must meet exactly at the end."""
    place = 0
    while place < len(data):
        kind, size = struct.unpack_from("<4sI", data, place)
        yield kind, data[place + 8 : place + 8 + size]
        place += 8 + size + size % 2
    assert place == len(data)


def test_a_tone_is_a_wave_file_that_python_reads() -> None:
    """Half a second, mono, 16 bits, 16 kHz, and not silent."""
    with wave.open(io.BytesIO(tone_wav(0.5))) as sound:
        assert (sound.getnchannels(), sound.getsampwidth(), sound.getframerate()) == (1, 2, 16000)
        assert sound.getnframes() == 8000
        samples = struct.unpack("<8000h", sound.readframes(8000))
    assert max(samples) > 11_000
    assert sum(a <= 0 < b for a, b in pairwise(samples)) == 220


def test_a_film_holds_its_frames_and_an_index_that_points_at_them() -> None:
    """Every frame of one colour, blue first as AVI has it."""
    data = plain_avi((255, 0, 0), size=8, frames=3)
    assert data[:4] == b"RIFF"
    assert data[8:12] == b"AVI "
    assert struct.unpack_from("<I", data, 4)[0] == len(data) - 8
    parts = list(chunks(data[12:]))
    header = next(content for kind, content in parts if content[:4] == b"hdrl")
    form = header.index(b"strf") + 8
    assert struct.unpack_from("<Iii", header, form) == (40, 8, -8)
    movie = next(content for kind, content in parts if content[:4] == b"movi")
    frames = [content for kind, content in chunks(movie[4:]) if kind == b"00db"]
    assert frames == [bytes((0, 0, 255)) * 64] * 3
    index = dict(parts)[b"idx1"]
    places = [struct.unpack_from("<4sIII", index, 16 * number)[2] for number in range(3)]
    assert [movie[place : place + 4] for place in places] == [b"00db"] * 3


def test_a_wide_picture_is_small_and_white() -> None:
    """Some kilobytes for a hundred million pixels, every bit of them set."""
    data = wide_png(10_000)
    assert len(data) < 64 * 1024
    assert struct.unpack_from(">II", data, 16) == (10_000, 10_000)
    size = struct.unpack_from(">I", data, 33)[0]
    rows = zlib.decompress(data[41 : 41 + size])
    stride = 1 + 1250
    assert len(rows) == 10_000 * stride
    assert rows[:stride] == b"\x00" + b"\xff" * 1250


def test_a_file_goes_into_a_data_url() -> None:
    """With its media type."""
    url = media_url("audio/wav", b"abc")
    head, _, body = url.partition(",")
    assert head == "data:audio/wav;base64"
    assert base64.b64decode(body) == b"abc"

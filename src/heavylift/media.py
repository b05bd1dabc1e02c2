"""Sound, moving pictures and pictures of many pixels, made here and known in every bit. Pure.

Formats that any decoder reads and no library is needed to write: PCM in WAV, raw frames in AVI,
one bit per pixel in PNG.
"""

from __future__ import annotations

import base64
import functools
import math
import struct
import zlib
from typing import Final

from heavylift.pictures import Rgb

_RATE: Final = 16000
_FRAMES_PER_S: Final = 4


def tone_wav(seconds: float = 0.5, hertz: float = 440.0) -> bytes:
    """A pure tone, 16-bit mono at 16 kHz."""
    count = int(seconds * _RATE)
    samples = [int(12000 * math.sin(2 * math.pi * hertz * n / _RATE)) for n in range(count)]
    data = struct.pack(f"<{count}h", *samples)
    form = struct.pack("<HHIIHH", 1, 1, _RATE, 2 * _RATE, 2, 16)
    return _riff(b"WAVE", _chunk(b"fmt ", form) + _chunk(b"data", data))


def plain_avi(colour: Rgb, size: int = 64, frames: int = 8) -> bytes:
    """A film of one colour, uncompressed, four frames a second. `size` a multiple of 4."""
    red, green, blue = colour
    frame = bytes((blue, green, red)) * (size * size)
    main = struct.pack(
        "<14I",
        1_000_000 // _FRAMES_PER_S,
        len(frame) * _FRAMES_PER_S,
        0,
        0,
        frames,
        0,
        1,
        len(frame),
        size,
        size,
        *(0,) * 4,
    )
    stream = b"vidsDIB " + struct.pack(
        "<IHHIIIIIIIIhhhh",
        *(0, 0, 0, 0, 1, _FRAMES_PER_S, 0, frames, len(frame), 0, 0),
        *(0, 0, size, size),
    )
    # A negative height is top-down: of rows from the bottom a common decoder loses its memory.
    form = struct.pack("<IiiHHIIiiII", 40, size, -size, 1, 24, 0, len(frame), 0, 0, 0, 0)
    streams = _list(b"strl", _chunk(b"strh", stream) + _chunk(b"strf", form))
    header = _list(b"hdrl", _chunk(b"avih", main) + streams)
    movie = _list(b"movi", _chunk(b"00db", frame) * frames)
    entry = len(frame) + 8
    index = b"".join(
        b"00db" + struct.pack("<III", 0x10, 4 + number * entry, len(frame))
        for number in range(frames)
    )
    return _riff(b"AVI ", header + movie + _chunk(b"idx1", index))


@functools.cache
def wide_png(side: int) -> bytes:
    """A white square of `side` × `side` pixels in a file of some kilobytes: one bit per pixel."""
    row = b"\x00" + b"\xff" * ((side + 7) // 8)
    compressor = zlib.compressobj(9)
    body = b"".join(compressor.compress(row) for _ in range(side)) + compressor.flush()
    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", body), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_png_chunk(kind, data) for kind, data in parts)


def media_url(kind: str, data: bytes) -> str:
    """The file as a `data:` URL of a media type."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def _png_chunk(kind: bytes, data: bytes) -> bytes:
    checksum = struct.pack(">I", zlib.crc32(kind + data))
    return struct.pack(">I", len(data)) + kind + data + checksum


def _chunk(kind: bytes, data: bytes) -> bytes:
    return kind + struct.pack("<I", len(data)) + data + b"\x00" * (len(data) % 2)


def _list(kind: bytes, data: bytes) -> bytes:
    return _chunk(b"LIST", kind + data)


def _riff(kind: bytes, data: bytes) -> bytes:
    return b"RIFF" + struct.pack("<I", len(data) + 4) + kind + data

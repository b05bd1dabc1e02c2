"""Pictures with a known content: drawn by us and read back, so that the right answer is known.

Pure. Writes and reads PNG of 8-bit RGB without interlace.
Source: https://www.w3.org/TR/png-3/.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

Rgb = tuple[int, int, int]

COLOURS: Final[Mapping[str, Rgb]] = {
    "red": (220, 30, 30),
    "green": (20, 150, 40),
    "blue": (30, 60, 220),
    "yellow": (240, 210, 20),
    "black": (0, 0, 0),
}
WHITE: Final[Rgb] = (255, 255, 255)
_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_RGB8: Final = b"\x08\x02\x00\x00\x00"


class Shape(StrEnum):
    """A filled figure."""

    SQUARE = "square"
    CIRCLE = "circle"
    TRIANGLE = "triangle"


@dataclass(frozen=True, slots=True)
class Picture:
    """`width` × `height` pixels, row by row, three bytes each."""

    width: int
    height: int
    pixels: bytes

    def at(self, x: int, y: int) -> Rgb:
        """The colour of one pixel."""
        start = 3 * (y * self.width + x)
        red, green, blue = self.pixels[start : start + 3]
        return red, green, blue


def draw_shape(shape: Shape, colour: Rgb, size: int = 128) -> Picture:
    """One figure in the middle of a white square picture."""
    half = size / 2
    reach = size * 0.35
    inside: dict[Shape, Callable[[float, float], bool]] = {
        Shape.SQUARE: lambda x, y: abs(x) <= reach and abs(y) <= reach,
        Shape.CIRCLE: lambda x, y: x * x + y * y <= reach * reach,
        Shape.TRIANGLE: lambda x, y: -reach <= y <= reach and 2 * abs(x) <= y + reach,
    }
    covers = inside[shape]
    return _paint(size, size, lambda x, y: covers(x + 0.5 - half, y + 0.5 - half), colour)


# Digits of 3 × 5 dots, a row per three letters.
_DIGITS: Final = {
    "0": "####.##.##.####",
    "1": ".#.##..#..#.###",
    "2": "###..#####..###",
    "3": "###..####..####",
    "4": "#.##.####..#..#",
    "5": "####..###..####",
    "6": "####..####.####",
    "7": "###..#..#..#..#",
    "8": "####.#####.####",
    "9": "####.####..####",
}
_DOTS_WIDE: Final = 4
_DOTS_HIGH: Final = 7
_DOT: Final = 12


def draw_number(number: str) -> Picture:
    """A number in large black digits on white."""

    def covers(x: int, y: int) -> bool:
        column, row = x // _DOT - 1, y // _DOT - 1
        place, dot = divmod(column, _DOTS_WIDE)
        if not (0 <= place < len(number) and dot < 3 and 0 <= row < 5):  # noqa: PLR2004 - 3 × 5
            return False
        return _DIGITS[number[place]][3 * row + dot] == "#"

    width = (len(number) * _DOTS_WIDE + 1) * _DOT
    return _paint(width, _DOTS_HIGH * _DOT, covers, COLOURS["black"])


def read_number(picture: Picture) -> str:
    """The number in a picture of `draw_number`; an empty string when it is none."""
    known = {dots: digit for digit, dots in _DIGITS.items()}
    read = []
    for place in range((picture.width // _DOT - 1) // _DOTS_WIDE):
        dots = "".join(
            "#" if picture.at(_middle(place * _DOTS_WIDE + x), _middle(y)) != WHITE else "."
            for y in range(5)
            for x in range(3)
        )
        read.append(known.get(dots, ""))
    return "".join(read)


def _middle(dot: int) -> int:
    return (dot + 1) * _DOT + _DOT // 2


def read_shape(picture: Picture) -> tuple[Shape, str] | None:
    """The figure and the name of its colour; None when the picture is all white.

    Told by how much of its bounding box a figure fills: all, π/4 or half.
    """
    covered = [
        (x, y)
        for y in range(picture.height)
        for x in range(picture.width)
        if picture.at(x, y) != WHITE
    ]
    if not covered:
        return None
    xs, ys = [x for x, _ in covered], [y for _, y in covered]
    filled = len(covered) / ((max(xs) - min(xs) + 1) * (max(ys) - min(ys) + 1))
    shares = {Shape.SQUARE: 1.0, Shape.CIRCLE: 0.785, Shape.TRIANGLE: 0.5}
    shape = min(shares, key=lambda each: abs(shares[each] - filled))
    seen = picture.at(*covered[len(covered) // 2])
    return shape, min(COLOURS, key=lambda name: _distance(COLOURS[name], seen))


def encode_png(picture: Picture) -> bytes:
    """The picture as a PNG file."""
    stride = 3 * picture.width
    rows = b"".join(
        b"\x00" + picture.pixels[start : start + stride]
        for start in range(0, len(picture.pixels), stride)
    )
    header = struct.pack(">II", picture.width, picture.height) + _RGB8
    return b"".join(
        (
            _SIGNATURE,
            _chunk(b"IHDR", header),
            _chunk(b"IDAT", zlib.compress(rows)),
            _chunk(b"IEND", b""),
        )
    )


def decode_png(data: bytes) -> Picture:
    """The picture in a PNG of the kind `encode_png` writes. Raises ValueError for any other."""
    if not data.startswith(_SIGNATURE):
        raise ValueError(data[:8])
    place = len(_SIGNATURE)
    header, body = b"", b""
    while place + 8 <= len(data):
        (length,) = struct.unpack_from(">I", data, place)
        kind, content = data[place + 4 : place + 8], data[place + 8 : place + 8 + length]
        header = content if kind == b"IHDR" else header
        body += content if kind == b"IDAT" else b""
        place += length + 12
    if header[8:] != _RGB8:
        raise ValueError(header)
    width, height = struct.unpack_from(">II", header)
    try:
        rows = zlib.decompress(body)
    except zlib.error as problem:
        raise ValueError(str(problem)) from problem
    stride = 3 * width + 1
    if len(rows) != stride * height or any(rows[::stride]):
        raise ValueError(len(rows))
    pixels = b"".join(rows[start + 1 : start + stride] for start in range(0, len(rows), stride))
    return Picture(width, height, pixels)


def data_url(picture: Picture) -> str:
    """The picture as a `data:` URL, as chat requests carry it."""
    return f"data:image/png;base64,{base64.b64encode(encode_png(picture)).decode()}"


def _paint(width: int, height: int, covers: Callable[[int, int], bool], colour: Rgb) -> Picture:
    on, off = bytes(colour), bytes(WHITE)
    pixels = b"".join(on if covers(x, y) else off for y in range(height) for x in range(width))
    return Picture(width, height, pixels)


def _chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)


def _distance(one: Rgb, other: Rgb) -> int:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))

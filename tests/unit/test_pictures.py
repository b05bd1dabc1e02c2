"""Pictures: what is drawn is what is read, and what is no picture is refused."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heavylift.pictures import (
    COLOURS,
    Picture,
    Shape,
    data_url,
    decode_png,
    draw_number,
    draw_shape,
    encode_png,
    read_number,
    read_shape,
)


@given(st.integers(1, 9), st.integers(1, 9), st.data())
def test_png_holds_every_pixel(width: int, height: int, data: st.DataObject) -> None:
    """Encoding and decoding give the same picture."""
    size = 3 * width * height
    picture = Picture(width, height, data.draw(st.binary(min_size=size, max_size=size)))
    assert decode_png(encode_png(picture)) == picture


@pytest.mark.parametrize("shape", Shape)
@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("size", [64, 128, 241])
def test_a_shape_is_read_as_it_was_drawn(shape: Shape, colour: str, size: int) -> None:
    """In every colour and size."""
    assert read_shape(draw_shape(shape, COLOURS[colour], size)) == (shape, colour)


@given(st.from_regex(r"[0-9]{1,6}", fullmatch=True))
def test_a_number_is_read_as_it_was_drawn(number: str) -> None:
    """All digits, leading zeros too."""
    assert read_number(draw_number(number)) == number


@pytest.mark.parametrize(
    "damage",
    [
        lambda png: png[:20],
        lambda png: png.replace(b"PNG", b"GIF"),
        lambda png: png[:60] + b"\0\0" + png[62:],
    ],
)
def test_a_damaged_file_is_refused(damage: Callable[[bytes], bytes]) -> None:
    """Cut, of another kind, or with bytes changed."""
    with pytest.raises(ValueError, match=r"."):
        decode_png(damage(encode_png(draw_number("7"))))


def test_a_data_url_is_what_requests_carry() -> None:
    """Its base64 is the file."""
    head, _, data = data_url(draw_number("1")).partition(",")
    assert head == "data:image/png;base64"
    assert base64.b64decode(data).startswith(b"\x89PNG")

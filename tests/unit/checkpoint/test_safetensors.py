"""The header decoder: what it lets pass and how it names what it does not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from heavylift.checkpoint.safetensors import (
    HEADER_LIMIT_BYTES,
    HeaderTable,
    byte_length,
    decode_header,
    header_length,
    layout_defects,
    length_defects,
)

SOUND = {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}


def encoded(header: Any) -> bytes:
    """The header as JSON."""
    return json.dumps(header).encode()


def problems(raw: bytes) -> list[tuple[str, str]]:
    """Problem and tensor of every defect of a header."""
    _, defects = decode_header(raw, "a")
    return [(defect.problem, defect.tensor) for defect in defects]


def test_a_sound_header_becomes_columns() -> None:
    """Names, dtypes, shapes and offsets come out in the order of the header."""
    second = {"dtype": "F32", "shape": [], "data_offsets": [12, 16]}
    table, defects = decode_header(
        encoded({"__metadata__": {"format": "pt"}, "x": SOUND, "y": second}), "a"
    )
    assert defects == ()
    assert table == HeaderTable(
        names=("x", "y"),
        dtypes=("BF16", "F32"),
        shapes=((2, 3), ()),
        begins=(0, 12),
        ends=(12, 16),
    )
    assert table.lengths == [12, 4]
    assert table.data_bytes == 16


def test_an_empty_header_is_sound() -> None:
    """A file may hold no tensor at all."""
    table, defects = decode_header(b"{}", "a")
    assert (table, defects) == (HeaderTable(), ())
    assert table.data_bytes == 0
    assert layout_defects(table, "a") == ()


@pytest.mark.parametrize("name", ["a:b", "quote\\u0022", "brace{", "\\ud83d\\ude00"])
def test_an_odd_name_is_no_defect(name: str) -> None:
    """Colons, escapes and braces in a name send the header on the slow walk, and it passes."""
    raw = f'{{"{name}":{json.dumps(SOUND)}}}'.encode()
    table, defects = decode_header(raw, "a")
    assert defects == ()
    assert table.names == (json.loads(f'"{name}"'),)


def test_padding_after_the_header_is_allowed() -> None:
    """The library fills headers with spaces up to a multiple of eight."""
    assert problems(encoded({"x": SOUND}) + b"      ") == []


def test_an_unknown_extra_field_is_ignored() -> None:
    """A field that the format does not know does not make the tensor unreadable."""
    assert problems(encoded({"x": {**SOUND, "note": "hello"}})) == []


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"dtype": "BF17"}, "bad_dtype"),
        ({"dtype": 16}, "bad_dtype"),
        ({"dtype": None}, "bad_dtype"),
        ({"shape": [2, -3]}, "bad_shape"),
        ({"shape": [2, 3.0]}, "bad_shape"),
        ({"shape": [2, True]}, "bad_shape"),
        ({"shape": "2x3"}, "bad_shape"),
        ({"shape": [2**63]}, "bad_shape"),
        ({"shape": [1] * 65}, "bad_shape"),
        ({"data_offsets": [0]}, "bad_offsets"),
        ({"data_offsets": [0, 12, 24]}, "bad_offsets"),
        ({"data_offsets": [-12, 0]}, "bad_offsets"),
        ({"data_offsets": [0, 2**63]}, "bad_offsets"),
        ({"data_offsets": None}, "bad_offsets"),
    ],
)
def test_a_wrong_field_is_named_with_its_tensor(changes: dict[str, Any], problem: str) -> None:
    """The broken tensor is named and left out; the others stay."""
    raw = encoded({"broken": {**SOUND, **changes}, "sound": SOUND})
    table, _ = decode_header(raw, "a")
    assert problems(raw) == [(problem, "broken")]
    assert table.names == ("sound",)


@pytest.mark.parametrize("field", ["dtype", "shape", "data_offsets"])
def test_a_missing_field_is_named(field: str) -> None:
    """A tensor without one of its three fields is a defect that says which."""
    lacking = {key: value for key, value in SOUND.items() if key != field}
    _, defects = decode_header(encoded({"x": lacking}), "a")
    assert [(each.problem, each.observed) for each in defects] == [("field_missing", repr(field))]


def test_a_tensor_given_twice_is_a_defect_and_the_first_counts() -> None:
    """JSON readers keep the last of two equal keys silently; this one says so."""
    other = {**SOUND, "shape": [3, 2]}
    raw = f'{{"x":{json.dumps(SOUND)},"x":{json.dumps(other)}}}'.encode()
    table, _ = decode_header(raw, "a")
    assert problems(raw) == [("duplicate_name", "x")]
    assert table.shapes == ((2, 3),)


def test_an_empty_twin_does_not_hide_a_tensor_given_twice() -> None:
    """The count of colons notices a twin without any field."""
    raw = f'{{"x":{{}},"x":{json.dumps(SOUND)}}}'.encode()
    assert ("duplicate_name", "x") in problems(raw)


def test_a_twin_in_other_letters_is_still_a_twin() -> None:
    """A name spelt with an escape is the same name."""
    raw = f'{{"x":{json.dumps(SOUND)},"\\u0078":{json.dumps(SOUND)}}}'.encode()
    assert problems(raw) == [("duplicate_name", "x")]


def test_a_field_given_twice_is_a_defect() -> None:
    """Two readers could take two different shapes from it."""
    raw = b'{"x":{"dtype":"U8","shape":[1],"shape":[2],"data_offsets":[0,2]}}'
    assert problems(raw) == [("duplicate_field", "x")]


def test_metadata_must_map_text_to_text() -> None:
    """A number in the metadata is a defect and the tensors are still read."""
    raw = encoded({"__metadata__": {"count": 3}, "x": SOUND})
    table, _ = decode_header(raw, "a")
    assert problems(raw) == [("bad_metadata", "")]
    assert table.names == ("x",)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"12",
        b'"text"',
        b'{"x":',
        b' {"x":1}',
        b'{"\xff":{}}',
        b'{"x":{"dtype":"U8","shape":[NaN],"data_offsets":[0,1]}}',
        b'{"x":{"dtype":"U8","shape":[Infinity],"data_offsets":[0,1]}}',
        b'{"x":' + b"[" * 1_000_000,
        b'{"x":{"y":' * 100_000,
        b'{"x":{"shape":[1' + b"0" * 10_000 + b"]}}",
    ],
)
def test_what_is_no_json_object_is_refused_whole(raw: bytes) -> None:
    """Broken text, NaN and endless nesting end as one defect, not as a traceback."""
    table, defects = decode_header(raw, "a")
    assert [defect.problem for defect in defects] == ["header_not_json"]
    assert table == HeaderTable()


@pytest.mark.parametrize("value", [3, None, "text", [1, 2]])
def test_an_entry_that_is_no_object_is_named(value: Any) -> None:
    """A tensor's value must be a JSON object."""
    assert problems(encoded({"x": value, "y": SOUND})) == [("entry_not_object", "x")]


def test_a_long_broken_header_is_refused_without_naming_each_defect() -> None:
    """The slow walk is bounded: 17 MiB of broken entries cost one defect."""
    raw = b'{"x":{"dtype":3},' + b" " * (17 * 2**20) + b'"y":{}}'
    assert problems(raw) == [("header_malformed", "")]


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"{" + b'"a":{},' * 1_000_002 + b"}", "too_many_tensors"),
        (b'{"__metadata__":{' + b'"a":"b",' * 200_010 + b'"c":"d"}}', "duplicate"),
    ],
)
def test_what_would_take_much_memory_is_counted_before_it_is_decoded(
    raw: bytes, problem: str
) -> None:
    """Empty entries without number, metadata without end."""
    table, defects = decode_header(raw, "a")
    assert table.names == ()
    assert [each.problem for each in defects] == ([problem] if problem != "duplicate" else [])


def test_a_million_tensors_in_one_file_are_refused() -> None:
    """The list is not turned into a table; how many there were is said."""
    row = '{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    raw = "{" + ",".join(f'"{number}":{row}' for number in range(1_000_001)) + "}"
    table, (defect,) = decode_header(raw.encode(), "a")
    assert (table, defect.problem, defect.observed) == (
        HeaderTable(),
        "too_many_tensors",
        1_000_001,
    )


def test_many_defects_are_counted_after_the_first_fifty() -> None:
    """A file of a hundred broken tensors names fifty and says how many more there are."""
    _, defects = decode_header(encoded({f"t{number}": {} for number in range(100)}), "a")
    assert len(defects) == 51
    assert (defects[-1].problem, defects[-1].observed) == ("more_defects", 50)


def test_control_characters_of_a_name_do_not_reach_the_screen() -> None:
    """An escape sequence in a tensor's name is shown as text, and a long name is cut."""
    _, defects = decode_header(encoded({"\x1b[2J" + "x" * 500: {}}), "a")
    assert "\x1b" not in defects[0].path
    assert len(defects[0].path) < 250


# --- the first eight bytes -----------------------------------------------------------------------


def test_the_length_is_little_endian() -> None:
    """The eight bytes before the header are its length."""
    assert header_length((300).to_bytes(8, "little") + b"{", 308, "a") == 300


@pytest.mark.parametrize(
    ("start", "file_bytes", "problem"),
    [
        (b"", 0, "file_too_short"),
        (b"1234567", 7, "file_too_short"),
        ((2**63).to_bytes(8, "little"), 10**12, "header_too_long"),
        ((2**64 - 1).to_bytes(8, "little"), 8, "header_too_long"),
        ((HEADER_LIMIT_BYTES + 1).to_bytes(8, "little"), 10**12, "header_too_long"),
        ((100).to_bytes(8, "little"), 107, "header_beyond_file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", 130, "lfs_pointer"),
    ],
)
def test_a_lying_length_is_refused_before_anything_is_read(
    start: bytes, file_bytes: int, problem: str
) -> None:
    """2^63, a header longer than its file and a pointer file are told from the first bytes."""
    result = header_length(start, file_bytes, "a")
    assert not isinstance(result, int)
    assert result.problem == problem


# --- layout and length ---------------------------------------------------------------------------


def table(*spans: tuple[int, int], dtype: str = "U8") -> HeaderTable:
    """Tensors a, b, … in these places, with the shape that fits."""
    return HeaderTable(
        names=tuple("abcdefgh"[: len(spans)]),
        dtypes=(dtype,) * len(spans),
        shapes=tuple((max(0, end - begin),) for begin, end in spans),
        begins=tuple(begin for begin, _ in spans),
        ends=tuple(end for _, end in spans),
    )


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(0, 4), (4, 8)], []),
        ([(4, 8), (0, 4)], []),
        ([(0, 4), (4, 4), (4, 8)], []),
        ([(4, 8)], [("offsets_gap", "a")]),
        ([(0, 4), (6, 8)], [("offsets_gap", "b")]),
        ([(0, 4), (2, 8)], [("offsets_overlap", "b")]),
        ([(0, 8), (0, 8)], [("offsets_overlap", "b")]),
        ([(0, 4), (4, 2)], [("offsets_reversed", "b")]),
    ],
)
def test_tensors_lie_one_after_the_other(
    spans: list[tuple[int, int]], expected: list[tuple[str, str]]
) -> None:
    """Order in the header does not matter; a gap, an overlap and a reversed span do."""
    found = layout_defects(table(*spans), "a")
    assert [(defect.problem, defect.tensor) for defect in found] == expected


def test_bytes_must_be_dtype_times_shape() -> None:
    """A BF16 [4] of 4 bytes is named with the 8 bytes it should have."""
    (defect,) = length_defects(table((0, 4), dtype="BF16"), "a")
    assert (defect.problem, defect.detail) == ("wrong_length", "4 ≠ 8")


@pytest.mark.parametrize(
    ("dtype", "shape", "expected"),
    [
        ("BF16", (163840, 7168), 2_348_810_240),
        ("F32", (), 4),
        ("U8", (0, 5), 0),
        ("F4", (6,), 3),
        ("F4", (5,), None),
        ("F6_E2M3", (4,), 3),
    ],
)
def test_byte_length_of_a_tensor(dtype: str, shape: tuple[int, ...], expected: int | None) -> None:
    """The embedding of Kimi K3 has 2.35 GB; five 4-bit numbers do not fill whole bytes."""
    assert byte_length(dtype, shape) == expected

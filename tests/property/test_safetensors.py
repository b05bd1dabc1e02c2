"""Rules of the safetensors reader that hold for any bytes."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heavylift.checkpoint.formats import SAFETENSORS_TYPES
from heavylift.checkpoint.grouping import group, lengths_agree, tally
from heavylift.checkpoint.read import read_checkpoint
from heavylift.checkpoint.safetensors import decode_header, layout_defects
from heavylift.cli.text import text
from heavylift.devserver.sparse_checkpoint import SparseTensor, encode_header, write_file
from heavylift.units import MIB

NAMES = st.text('abl.:{}"\\0123\n é', min_size=1, max_size=12)


@st.composite
def tensors(draw: st.DrawFn) -> list[SparseTensor]:
    """Tensors of distinct names, of any dtype, whose bits fill whole bytes."""
    made = []
    for name in draw(st.lists(NAMES, max_size=6, unique=True)):
        dtype = draw(st.sampled_from(sorted(SAFETENSORS_TYPES)))
        last = SAFETENSORS_TYPES[dtype].elements * draw(st.integers(0, 3))
        shape = (*draw(st.lists(st.integers(0, 4), max_size=3)), last)
        made.append(SparseTensor(name=name, dtype=dtype, shape=shape))
    return made


@given(tensors())
def test_what_is_written_reads_back(made: list[SparseTensor]) -> None:
    """Decoding undoes encoding, and the writer's layout has no defects."""
    raw, data_bytes = encode_header(made)
    table, defects = decode_header(raw[8:], "a")
    assert defects == ()
    assert layout_defects(table, "a") == ()
    assert table.data_bytes == data_bytes
    read = {
        SparseTensor(name=name, dtype=dtype, shape=shape)
        for name, dtype, shape in zip(table.names, table.dtypes, table.shapes, strict=True)
    }
    assert read == set(made)


@given(tensors())
def test_grouping_loses_no_tensor_and_no_byte(made: list[SparseTensor]) -> None:
    """Counts and bytes of the groups are those of the tensors."""
    table, _ = decode_header(encode_header(made)[0][8:], "a")
    tallied = tally(table)
    groups = group(tallied)
    assert lengths_agree(tallied)
    assert sum(each.count for each in groups) == len(made)
    assert sum(each.bytes for each in groups) == sum(each.bytes for each in made)


SOUND = encode_header(
    [
        SparseTensor(name=f"m.layers.{layer}.x.experts.{expert}.w", dtype="BF16", shape=(4, 2))
        for layer in range(2)
        for expert in range(3)
    ]
)[0]


@given(st.integers(0, len(SOUND)), st.binary(max_size=8), st.integers(0, len(SOUND)))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_file_is_reported(
    tmp_path_factory: pytest.TempPathFactory, place: int, patch: bytes, end: int
) -> None:
    """Overwritten and cut anywhere, a file gives defects with texts, never a traceback."""
    damaged = (SOUND[:place] + patch + SOUND[place + len(patch) :])[:end]
    path = tmp_path_factory.mktemp("damaged") / "a.safetensors"
    path.write_bytes(damaged)
    read = read_checkpoint(path)
    # The file has no data at all, so there is always something to report.
    assert read.defects
    for defect in read.defects:
        assert text(f"defect.{defect.problem}", detail=defect.detail)
        assert defect.path.isprintable()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["dtype", "shape", "data_offsets", "__metadata__", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_decodes_to_a_table_or_defects(document: object) -> None:
    """Whatever the JSON holds, what comes out as a table is typed as promised."""
    table, _ = decode_header(json.dumps(document).encode(), "a")
    for dtype, shape, begin, end in zip(
        table.dtypes, table.shapes, table.begins, table.ends, strict=True
    ):
        assert dtype in SAFETENSORS_TYPES
        assert all(type(size) is int and size >= 0 for size in shape)
        assert 0 <= begin < 2**63
        assert 0 <= end < 2**63


@given(st.binary(max_size=200))
def test_any_bytes_decode_to_a_table_or_defects(raw: bytes) -> None:
    """Random bytes raise nothing."""
    table, defects = decode_header(raw, "a")
    assert defects or not table.names or raw.startswith(b"{")


def test_memory_is_a_small_multiple_of_the_header(tmp_path: Path) -> None:
    """A hundred thousand distinct tensors in one file take less than 100 MiB to read."""
    path = tmp_path / "a.safetensors"
    write_file(
        path, [SparseTensor(name=f"t{number}", dtype="U8", shape=()) for number in range(100_000)]
    )
    tracemalloc.start()
    try:
        read = read_checkpoint(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (read.tensors, read.defects) == (100_000, ())
    assert peak < 100 * MIB

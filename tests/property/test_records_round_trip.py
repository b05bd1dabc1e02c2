"""The rule of the records: what was encoded comes back equal, and satisfies its schema."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from heavylift.records.json_schema import RECORDS, document

# JSON has no NaN, and integers beyond 64 bits are outside what other programs read.
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))
st.register_type_strategy(int, st.integers(-(2**63), 2**63 - 1))


@pytest.mark.parametrize("name", RECORDS)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_record_survives_the_round_trip(name: str, data: st.DataObject) -> None:
    """decode(encode(record)) == record for records of every shape their types allow."""
    cls = RECORDS[name]
    record = data.draw(_records(name))
    encoded = msgspec.json.encode(record)
    assert msgspec.json.decode(encoded, type=cls) == record
    _validator(name).validate(msgspec.json.decode(encoded))


@cache
def _records(name: str) -> st.SearchStrategy[Any]:
    """Made once: a record of many parts takes longer to be described than to be drawn."""
    return st.from_type(RECORDS[name])


@cache
def _validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(document(RECORDS[name]))

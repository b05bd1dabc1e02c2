"""The rule of the records: what was encoded comes back equal, and satisfies its schema."""

from __future__ import annotations

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
    record = data.draw(st.from_type(cls))
    encoded = msgspec.json.encode(record)
    assert msgspec.json.decode(encoded, type=cls) == record
    Draft202012Validator(document(cls)).validate(msgspec.json.decode(encoded))

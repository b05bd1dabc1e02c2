"""Configs of many architectures with changed fields: a plan, or an error with a code."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from heavylift.errors import HeavyliftError
from heavylift.planning import Planning
from heavylift.records.plan import PlanRequest

PLANNING: Final = Planning()
GOLDEN: Final = Path(__file__).parents[1] / "golden" / "architectures.toml"
CONFIGS: Final = [
    entry["config"] for entry in tomllib.loads(GOLDEN.read_text("utf-8"))["architecture"]
]
FORMS: Final = [
    None,
    {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16},
    {"quant_method": "gptq", "bits": 4, "group_size": 128},
    {"quant_method": "fp8", "weight_block_size": [128, 128]},
]
ODD: Final[st.SearchStrategy[Any]] = st.one_of(
    st.sampled_from([0, 1, 2, 3, 7, 48, 1000, -1, 2**31, None, "8", 1.5, True, [], {}, [1, 2]]),
    st.integers(0, 10_000),
)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_changed_config_is_planned_or_refused_with_a_code(data: st.DataObject) -> None:
    """Whatever the numbers: no other error, and no plan with less than nothing in it."""
    config: dict[str, Any] = dict(data.draw(st.sampled_from(CONFIGS)))
    config["quantization_config"] = data.draw(st.sampled_from(FORMS))
    fields = sorted(set(config) - {"model_type"})
    for field in data.draw(st.lists(st.sampled_from(fields), max_size=3)):
        config[field] = data.draw(ODD)
    with TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config))
        _, rack = PLANNING.rack(data.draw(st.sampled_from(["1xH100", "8xMI300X"])))
        assert rack is not None
        request = PlanRequest(model=folder, rack=rack, context_tokens=1024)
        try:
            plan = PLANNING.plan(request, PLANNING.knowledge(folder), with_fixes=False)
        except HeavyliftError:  # every one of them has a code and a sentence
            return
    assert plan.per_gpu.weights_bytes.low > 0
    assert plan.kv_bytes_per_token >= 0

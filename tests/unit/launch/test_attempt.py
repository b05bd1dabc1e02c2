"""What is known of a start before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from heavylift.errors import HeavyliftError
from heavylift.facts.catalog import Catalog
from heavylift.launch.attempt import Attempt
from heavylift.records.launch import LaunchSpec, RankSpec
from heavylift.telemetry.engine_log import EngineWords


def test_ranks_of_mpi_are_not_started_one_by_one(tmp_path: Path) -> None:
    """A task per card is the launcher's to start: one process of each would wait for the others."""
    spec = LaunchSpec(
        engine="tensorrt-llm",
        engine_version="1.3.0rc27",
        image_digest=None,
        model="kimi-k3",
        model_revision=None,
        ranks=(RankSpec(rank=0, host="127.0.0.1", argv=("true",), name="serve-0", tasks=4),),
        expected_phases=(),
        deadline_s=60,
        plan_digest="sha256:0",
    )
    words = EngineWords(Catalog().engine_logs(), spec.engine)
    attempt = Attempt(spec, words=words, folder=tmp_path, run_id="r", secrets={})
    with pytest.raises(HeavyliftError) as caught:
        attempt.check()
    assert caught.value.code == "REC116"

"""Running the command line in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from heavylift.cli.main import main


@dataclass(frozen=True)
class Ran:
    """What a command line left: status and the two streams."""

    status: int
    out: str
    err: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """`run("plan", "kimi-k3", "--on", "8xB300")`."""

    def ran(*args: str) -> Ran:
        with pytest.raises(SystemExit) as left:
            main(list(args))
        captured = capsys.readouterr()
        code = left.value.code
        return Ran(status=code if isinstance(code, int) else 1, out=captured.out, err=captured.err)

    return ran

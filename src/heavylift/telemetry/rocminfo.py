"""rocminfo: the agents that the ROCm runtime sees, or why it sees none."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from heavylift.telemetry.values import Entry, known, tree, unreadable, whole


@dataclass(frozen=True, kw_only=True, slots=True)
class Agent:
    """One agent. `name` is the gfx target of a GPU, the model of a CPU."""

    number: int
    name: str | None
    marketing_name: str | None
    device_type: str | None
    node: int | None
    uuid: str | None
    compute_units: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class RocmInfo:
    """`error` is the line that says why the runtime could not start, such as a refused /dev/kfd."""

    agents: tuple[Agent, ...]
    wsl: bool
    runtime_version: str | None
    module_version: str | None
    error: str | None

    @property
    def gpus(self) -> tuple[Agent, ...]:
        """The GPU agents."""
        return tuple(agent for agent in self.agents if agent.device_type == "GPU")


_AGENT: Final = re.compile(r"^\*+\s*\nAgent (\d{1,6})\s*\n\*+\s*$", re.MULTILINE)
_ERROR: Final = re.compile(
    r"^.*(?:Unable to open|not loaded|HSA_STATUS_ERROR|hsa_init failed|Fail(?:ed|ure)).*$",
    re.MULTILINE | re.IGNORECASE,
)
_MODULE: Final = re.compile(r"ROCk module (?:version (\S+) )?is loaded")


def parse_rocminfo(text: str) -> RocmInfo:
    """The output of rocminfo. Raises PRE101 when nothing in it is of that tool."""
    parts = _AGENT.split(text)
    head = tree(parts[0].splitlines())
    module = _MODULE.search(text)
    error = _ERROR.search(text)
    agents = tuple(
        _agent(int(number), tree(body.splitlines()))
        for number, body in zip(parts[1::2], parts[2::2], strict=True)
    )
    wsl = "WSL environment detected" in text
    runtime = known(head.get("Runtime Version"))
    if not (agents or wsl or runtime or module or error):
        raise unreadable("rocminfo", text.strip()[:80] or "empty")
    return RocmInfo(
        agents=agents,
        wsl=wsl,
        runtime_version=runtime,
        module_version=None if module is None else module[1],
        error=None if error is None else error[0].strip(),
    )


def _agent(number: int, root: Entry) -> Agent:
    return Agent(
        number=number,
        name=known(root.get("Name")),
        marketing_name=known(root.get("Marketing Name")),
        device_type=known(root.get("Device Type")),
        node=whole(root.get("Node")),
        uuid=known(root.get("Uuid")),
        compute_units=whole(root.get("Compute Unit")),
    )

"""Scenario files: defaults, rules that state only what differs, and errors that say where."""

from __future__ import annotations

from pathlib import Path

import pytest

from heavylift.cli.text import text
from heavylift.devserver.library import load, names, shipped
from heavylift.devserver.scenario import (
    AT_ONCE,
    FaultKind,
    Match,
    Scenario,
    decode,
)
from heavylift.errors import HeavyliftError


def test_an_empty_file_is_a_healthy_server() -> None:
    """Everything has a default; the server is ready at once."""
    scenario = decode("", "empty.toml")
    assert scenario == Scenario()
    assert scenario.start == AT_ONCE
    assert scenario.rules == ()


def test_a_rule_states_only_what_differs() -> None:
    """The file's pace and reply hold inside a rule, except for what the rule says."""
    scenario = decode(
        "[pace]\nttft_s = 1.0\ninterval_s = 0.5\n[reply]\ntokens = 3\n"
        '[[rule]]\npace = { ttft_s = 2.0 }\nreply = { text = "no" }\n',
        "x.toml",
    )
    rule = scenario.rules[0]
    assert (rule.pace.ttft_s, rule.pace.interval_s) == (2.0, 0.5)
    assert (rule.reply.text, rule.reply.tokens) == ("no", 3)
    assert rule.fault is None


@pytest.mark.parametrize(
    ("match", "numbers"),
    [
        (Match(), [1, 2, 3, 4, 5, 6]),
        (Match(first=3, last=4), [3, 4]),
        (Match(first=2, every=2), [2, 4, 6]),
        (Match(model="other"), []),
        (Match(model="m", prompt_contains="hello"), [1, 2, 3, 4, 5, 6]),
        (Match(prompt_contains="goodbye"), []),
    ],
)
def test_a_match_needs_all_its_conditions(match: Match, numbers: list[int]) -> None:
    """By number, by every n-th, by model and by prompt."""
    assert [n for n in range(1, 7) if match.covers(n, "m", "hello you")] == numbers


@pytest.mark.parametrize(
    ("text_", "code", "place"),
    [
        ("[pace", "DEV001", "end of a table"),
        ("[pace]\nttft = 1", "DEV002", "$.pace"),
        ("[pace]\nttft_s = -1.0", "DEV002", "$.pace.ttft_s"),
        ("[reply]\ntokens = 1.5", "DEV002", "$.reply.tokens"),
        ('[[rule]]\nfault = { kind = "explode" }', "DEV002", "$.rule[0].fault.kind"),
        ("[[rule]]\npace = 5", "DEV002", "$.rule[0].pace"),
        ("rule = 5", "DEV002", "$.rule"),
        ("rule = [5]", "DEV002", "$.rule[0]"),
        ("pace = 5\n[[rule]]\n", "DEV002", "$.pace"),
        ("[server]\nmodels = []", "DEV002", "$.server.models"),
    ],
)
def test_a_defect_is_reported_with_its_place(text_: str, code: str, place: str) -> None:
    """The error names the file and the place inside it."""
    with pytest.raises(HeavyliftError) as caught:
        decode(text_, "x.toml")
    assert caught.value.code == code
    assert caught.value.params["path"] == "x.toml"
    assert place in str(caught.value.params["detail"])


def test_every_shipped_scenario_decodes_and_is_described() -> None:
    """Each has a text of its own, and a line of the list fits 80 columns."""
    listed = shipped()
    assert [scenario.name for scenario in listed] == list(names())
    width = max(map(len, names()))
    for name in names():
        assert width + 2 + len(text(f"scenario.{name}")) <= 80


def test_every_kind_of_fault_is_in_a_shipped_scenario() -> None:
    """What can be scripted can be tried by name."""
    assert {fault for scenario in shipped() for fault in scenario.faults} == set(FaultKind)


def test_a_scenario_may_be_a_file(tmp_path: Path) -> None:
    """A path is as good as a name; what is neither is DEV003."""
    file = tmp_path / "mine.toml"
    file.write_text("[reply]\ntokens = 2\n")
    assert load(str(file)).reply.tokens == 2
    with pytest.raises(HeavyliftError) as caught:
        load(str(tmp_path / "absent.toml"))
    assert caught.value.code == "DEV003"

"""`heavylift doctor`: collected here, judged anywhere, shown in words."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.cells import cell_len

from heavylift.cli import doctor
from heavylift.errors import Exit
from heavylift.facts.catalog import Catalog
from heavylift.preflight.reading import Item
from heavylift.records.snapshot import Observation, State

Run = Callable[..., Any]

XML = (
    "<nvidia_smi_log><driver_version>550.54.15</driver_version><gpu id='0'>"
    "<product_name>NVIDIA H200</product_name>"
    "<fb_memory_usage><total>143771 MiB</total><used>90000 MiB</used></fb_memory_usage>"
    "<mig_mode><current_mig>Enabled</current_mig></mig_mode></gpu></nvidia_smi_log>"
)
# Steers a terminal if it is let through.
HOSTILE = "\x1b]0;owned\x07\x1b[31mred"


def _said(text: str) -> dict[str, str]:
    return {"state": "ok", "text": text}


@pytest.fixture
def rack(tmp_path: Path) -> Callable[..., Path]:
    """Writes the snapshot of a host with one card that is cut, in use and of an old driver."""

    def write(name: str = "rack-1", driver: str = "550.54.15", **changes: Any) -> Path:
        observations = {
            "tool:nvidia-smi -q -x": _said(XML.replace("550.54.15", driver)),
            "read:/proc/sys/kernel/osrelease": _said("6.8.0"),
            "stat:/dev/dxg": {"state": "absent"},
            "read:/etc/os-release": _said(f"ID=nixos\nPRETTY_NAME={HOSTILE}"),
            "stat:/dev/nvidiactl": _said("{}"),
            **changes,
        }
        document = {
            "host": name,
            "taken_at": "2026-03-02T10:00:00+00:00",
            "heavylift_version": "0",
            "observations": observations,
        }
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(document), "utf-8")
        return path

    return write


def test_collected_here_and_judged_from_the_file(run: Run, tmp_path: Path) -> None:
    """A snapshot of this machine is written without a verdict, and judged from its file: each of
    the 94 checks has a finding, those that do not apply as such.
    """
    path = tmp_path / "here.json"
    collected = run("doctor", "--collect", str(path))
    assert (collected.status, collected.out) == (0, "")
    assert str(path) in collected.err
    judged = run("doctor", "--from", str(path), "--json")
    report = json.loads(judged.out)
    assert judged.status == (4 if report["failed"] else 0)
    assert len({each["id"] for each in report["findings"]}) == 94
    beside = {each["id"] for each in report["findings"] if not each["applies"]}
    assert beside == {each["id"] for each in report["not_applicable"]}
    applying = [each for each in report["findings"] if each["applies"]]
    assert sum(report["counts"].values()) == len(applying)


def test_a_failed_check_is_status_four(run: Run, rack: Callable[..., Path]) -> None:
    """A cut card fails, with what was seen, a remedy and a source; unknown alone would not."""
    ran = run("doctor", "--from", str(rack()), "--json")
    report = json.loads(ran.out)
    assert ran.status == 4
    found = {each["id"]: each for each in report["findings"]}
    assert found["nv.mig"]["severity"] == "fail"
    assert "nvidia-smi -mig 0" in found["nv.mig"]["fix"]
    assert found["nv.mig"]["source"]
    assert found["nv.xid"]["severity"] == "unknown"
    assert report["counts"]["fail"] == sum(e["severity"] == "fail" for e in report["findings"])


def test_unknown_alone_is_no_failure(run: Run, tmp_path: Path) -> None:
    """A snapshot in which nothing was observed is unknown in all that applies, and status 0."""
    path = tmp_path / "empty.json"
    path.write_text(
        json.dumps({"host": "h", "taken_at": "t", "heavylift_version": "0", "observations": {}}),
        "utf-8",
    )
    ran = run("doctor", "--from", str(path), "--json")
    counts = json.loads(ran.out)["counts"]
    assert (ran.status, counts["ok"], counts["fail"]) == (0, 0, 0)
    assert counts["unknown"] > 50


@pytest.mark.parametrize("verbose", [(), ("-v",)])
def test_the_screen(run: Run, rack: Callable[..., Path], verbose: tuple[str, ...]) -> None:
    """80 columns, groups with counts, glyph and word, the next command last."""
    path = rack()
    ran = run("doctor", "--from", str(path), *verbose)
    lines = ran.out.splitlines()
    *body, last = lines
    assert all(cell_len(line) <= 80 for line in body)
    assert "x fail    MIG  nv.mig" in ran.out
    assert any(line.startswith("Platform, driver and cards") and " fail" in line for line in body)
    assert last.startswith("next: heavylift doctor --for kimi-k3 --from")
    assert shlex.split(last)[-1 if verbose else -2] == str(path)


@pytest.mark.parametrize(
    ("target", "failed", "files", "command"),
    [
        ("k3/launch.json", False, (), "heavylift rehearse k3"),
        ("k3/launch.json", True, (), "heavylift doctor --for k3/launch.json -v"),
        ("k3/launch.json", False, ("a",), "heavylift doctor --for k3/launch.json --from a"),
        (None, False, (), "heavylift doctor --for kimi-k3"),
    ],
)
def test_the_next_command_leads_on(
    target: str | None, failed: bool, files: tuple[str, ...], command: str
) -> None:
    """After a recipe that nothing here stands against comes its rehearsal; else the machine is
    looked at again, with a model or with details.
    """
    report = SimpleNamespace(target=target, failed=failed, verbose=False)
    found = doctor._next(cast("Any", report), tuple(map(Path, files)), Catalog())
    assert found == command


def test_a_foreign_snapshot_does_not_steer_the_terminal(
    run: Run, rack: Callable[..., Path]
) -> None:
    """Escape sequences in what a machine said are shown as what they are not: text."""
    ran = run("doctor", "--from", str(rack()), "-v")
    assert "\x1b" not in ran.out
    assert "\x07" not in ran.out


def test_hosts_are_compared(run: Run, rack: Callable[..., Path]) -> None:
    """Two snapshots of different drivers differ, and the screen names hosts and versions."""
    ran = run("doctor", "--from", str(rack()), "--from", str(rack("rack-2", "580.95.05")))
    assert ran.status == 4
    assert "nvidia_driver: rack-1 550.54.15, rack-2 580.95.05" in ran.out
    assert "[rack-2]" in ran.out


def test_a_model_is_planned_on_the_cards_that_are_there(
    run: Run, rack: Callable[..., Path]
) -> None:
    """With a model's name the plan's arithmetic is judged where the cards make a known rack."""
    gpus = "".join(
        f"<gpu id='{number}'><product_name>NVIDIA H200</product_name></gpu>" for number in range(8)
    )
    whole = _said(f"<nvidia_smi_log>{gpus}</nvidia_smi_log>")
    path = rack("rack-8", **{"tool:nvidia-smi -q -x": whole})
    report = json.loads(run("doctor", "--from", str(path), "--for", "kimi-k3", "--json").out)
    found = {each["id"]: each for each in report["findings"]}
    assert found["plan.experts"]["severity"] == "ok"


@pytest.mark.parametrize(("name", "count"), [("NVIDIA H200", 12), ("Card 9000", 8)])
def test_cards_that_make_no_rack(
    run: Run, rack: Callable[..., Path], name: str, count: int
) -> None:
    """A card nobody knows, or a number no machine holds, makes no plan: none is made up."""
    gpus = f"<gpu><product_name>{name}</product_name></gpu>" * count
    xml = f"<nvidia_smi_log>{gpus}</nvidia_smi_log>"
    path = rack("odd", **{"tool:nvidia-smi -q -x": _said(xml)})
    report = json.loads(run("doctor", "--from", str(path), "--for", "kimi-k3", "--json").out)
    skipped = {each["id"]: each["reason"] for each in report["not_applicable"]}
    assert skipped["plan.heads"] == "no_plan"


def test_many_lines_are_cut_unless_asked_for(run: Run, rack: Callable[..., Path]) -> None:
    """A finding shows its first three lines and how many more there are; -v shows all."""
    gpus = "".join(
        f"<gpu><product_name>{'x' * 90}</product_name><mig_mode><current_mig>Enabled"
        "</current_mig></mig_mode></gpu>"
        for _ in range(8)
    )
    path = rack(
        "many", **{"tool:nvidia-smi -q -x": _said(f"<nvidia_smi_log>{gpus}</nvidia_smi_log>")}
    )
    short = run("doctor", "--from", str(path)).out
    assert "| and 5 more (-v)" in short
    whole = run("doctor", "--from", str(path), "--for", "kimi-k3", "-v").out
    assert "judged against kimi-k3" in whole
    assert "| GPU 7" in whole
    *body, _ = whole.splitlines()
    assert all(cell_len(line) <= 80 for line in body if "http" not in line)


def test_a_disk_that_does_not_answer(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder on a dead file server is told, before anything waits for it."""

    def dead(items: list[Item]) -> dict[str, Observation]:
        return {item.key: Observation(state=State.TIME_LIMIT) for item in items}

    monkeypatch.setattr("heavylift.preflight.reading.observe", dead)
    ran = run("doctor", "--for", "/mnt/dead")
    assert (ran.status, ran.out) == (4, "")
    assert "error[PRE111]" in ran.err


def test_a_plan_from_its_file(run: Run, rack: Callable[..., Path], tmp_path: Path) -> None:
    """The JSON of `heavylift plan` is a target: seven cards too few are missed."""
    plan = tmp_path / "plan.json"
    plan.write_text(run("plan", "kimi-k3", "--on", "8xH200", "--json").out, "utf-8")
    report = json.loads(run("doctor", "--from", str(rack()), "--for", str(plan), "--json").out)
    found = {each["id"]: each for each in report["findings"]}
    assert (found["nv.smi"]["observed"], found["nv.smi"]["expected"]) == (1, 8)


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        (("--for", "kimi-k33"), 3, "error[FACT010]"),
        (("--for", "{folder}/none.json"), 4, "error[PRE110]"),
        (("--for", "{folder}/other.json"), 4, "error[PRE110]"),
        (("--from", "{folder}/other.json"), 4, "error[PRE102]"),
        (("--from", "{folder}/other.json", "--collect", "x"), 2, "--collect"),
        (("--from", "{folder}/other.json", "--engine-python", "/bin/sh"), 2, "--engine-python"),
        (("--from", "{folder}/absent.json"), 2, "absent.json"),
    ],
)
def test_mistakes(run: Run, tmp_path: Path, args: tuple[str, ...], status: int, words: str) -> None:
    """An unknown name, a file that is none, and options that do not go together are told."""
    (tmp_path / "other.json").write_text('{"a": 1}', "utf-8")
    ran = run("doctor", *(arg.format(folder=tmp_path) for arg in args))
    assert (ran.status, ran.out) == (status, "")
    assert words in ran.err


def test_an_interpreter_that_is_none_is_refused(run: Callable[..., Any], tmp_path: Path) -> None:
    """A file of bytes and a program that is no Python."""
    data = tmp_path / "bin.dat"
    data.write_bytes(bytes(range(256)))
    for path in (str(data), "/bin/true"):
        ran = run("doctor", "--engine-python", path)
        assert ran.status == Exit.USAGE
        assert "no Python interpreter that starts" in ran.err

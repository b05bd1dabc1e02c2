"""The snapshot, really taken here: time limits hold, secrets stay out, what was seen comes back."""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heavylift.errors import HeavyliftError
from heavylift.facts.schema import CheckFacts
from heavylift.preflight.checks.runner import judge
from heavylift.preflight.checks.view import Target
from heavylift.preflight.places import ENGINE_STEPS
from heavylift.preflight.reading import Item, observe, run_tool
from heavylift.preflight.snapshot import Wanted, read_snapshot, take_snapshot, write_snapshot
from heavylift.records.finding import Severity
from heavylift.records.snapshot import Observation, Snapshot, State
from heavylift.redact import without_secrets

Facts = dict[str, tuple[CheckFacts, ...]]
Script = Callable[[str, str], Path]

GPU_GROUPS = ("amd.", "nv.", "wsl.", "win.", "topo.", "bios.", "pci.", "ib.")


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Writes an executable shell script."""

    def write(name: str, body: str) -> Path:
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n", "utf-8")
        path.chmod(0o755)
        return path

    return write


@pytest.fixture(scope="module")
def here() -> Snapshot:
    """This machine as it is."""
    return take_snapshot()


def test_this_machine_is_read(here: Snapshot) -> None:
    """What every Linux has is observed as it stands in the files."""
    release = here.observations["read:/proc/sys/kernel/osrelease"]
    assert release.text.strip() == os.uname().release
    assert "MemTotal" in here.observations["read:/proc/meminfo"].text
    assert json.loads(here.observations["space:/dev/shm"].text)["total"] > 0
    assert json.loads(here.observations["processes:"].text)["seen"] > 0


def test_no_card_is_ok_where_none_is(
    here: Snapshot, targets: dict[str, Target], check_facts: Facts
) -> None:
    """On a machine without a card every check of cards is unknown or not applicable, never ok."""
    if here.observations["stat:/dev/nvidiactl"].state is State.OK:
        pytest.skip("this machine has a card")
    report = judge([here], targets["none"], check_facts)
    well = [
        finding.id
        for finding in report.findings
        if finding.id.startswith(GPU_GROUPS) and finding.severity is Severity.OK
    ]
    assert well == []
    assert not report.failed or all(
        not each.id.startswith(GPU_GROUPS) for each in report.findings if each.severity == "fail"
    )
    answered = {each.id for each in report.findings} | {each.id for each in report.skipped}
    assert len(answered) == 94


def test_round_trip(here: Snapshot, tmp_path: Path) -> None:
    """A snapshot that was written is the one that is read, and its owner alone may read it."""
    path = tmp_path / "snapshot.json"
    write_snapshot(here, path)
    assert read_snapshot(path) == here
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@given(
    st.dictionaries(
        st.text(max_size=20),
        st.builds(
            Observation,
            state=st.sampled_from(State),
            text=st.text(max_size=50),
            detail=st.text(max_size=10),
            exit_status=st.none() | st.integers(-9, 255),
            truncated=st.booleans(),
        ),
        max_size=4,
    )
)
def test_any_snapshot_round_trips(observations: dict[str, Observation]) -> None:
    """Encoding and decoding a snapshot is the identity, whatever was said."""
    whole = Snapshot(host="h", taken_at="t", heavylift_version="0", observations=observations)
    assert msgspec.json.decode(msgspec.json.encode(whole), type=Snapshot) == whole


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("", "PRE102"),
        ("[]", "PRE102"),
        ('{"host": 1}', "PRE102"),
        (
            '{"host": "h", "taken_at": "t", "heavylift_version": "0", "schema": 9}',
            "PRE104",
        ),
    ],
)
def test_what_is_no_snapshot(tmp_path: Path, content: str, code: str) -> None:
    """A file that is no snapshot, or one of another schema, is a coded error."""
    path = tmp_path / "s.json"
    path.write_text(content, "utf-8")
    with pytest.raises(HeavyliftError) as caught:
        read_snapshot(path)
    assert caught.value.code == code


def test_missing_and_unwritable_files(here: Snapshot, tmp_path: Path) -> None:
    """A snapshot that is not there, or a folder that is not, is a coded error."""
    with pytest.raises(HeavyliftError) as unread:
        read_snapshot(tmp_path / "absent.json")
    assert unread.value.code == "PRE102"
    with pytest.raises(HeavyliftError) as unwritten:
        write_snapshot(here, tmp_path / "absent" / "s.json")
    assert unwritten.value.code == "PRE103"


# --- programs ------------------------------------------------------------------------------------


def test_a_wedged_tool_costs_its_limit(script: Script) -> None:
    """A tool that never answers is given up at its limit, and what it said so far is kept."""
    path = script("wedged", "echo begun; exec sleep 60")
    begin = time.monotonic()
    found = run_tool([str(path)], limit_s=2.0)
    assert time.monotonic() - begin < 30
    assert (found.state, found.text, found.exit_status) == (State.TIME_LIMIT, "begun\n", None)


def test_its_children_end_with_it(script: Script, tmp_path: Path) -> None:
    """The whole group of a wedged tool is killed, not its leader alone."""
    pid_file = tmp_path / "pid"
    path = script("parent", f"sleep 60 & echo $! > {pid_file}; wait")
    run_tool([str(path)], limit_s=2.0)
    child = int(pid_file.read_text("utf-8"))
    deadline = time.monotonic() + 30
    while _runs(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _runs(child)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_a_grandchild_that_holds_the_pipe(script: Script) -> None:
    """A tool that has ended is done with, also when what it started keeps its output open."""
    path = script("daemon", "sleep 60 & echo done")
    begin = time.monotonic()
    found = run_tool([str(path)], limit_s=50)
    assert time.monotonic() - begin < 30
    assert (found.state, found.text) == (State.OK, "done\n")


def test_endless_output_is_cut(script: Script) -> None:
    """Output beyond the limit is dropped, and that it was is said."""
    path = script("flood", "exec yes")
    found = run_tool([str(path)], limit_s=1, limit_bytes=1000)
    assert len(found.text) == 1000
    assert found.truncated


def test_tools_that_fail_are_told_apart(script: Script, tmp_path: Path) -> None:
    """Absent, forbidden and failing are three things; none of them is ok."""
    assert run_tool(["no-such-tool-of-anyone"]).state is State.ABSENT
    plain = tmp_path / "plain"
    plain.write_text("x", "utf-8")
    assert run_tool([str(plain)]).state is State.DENIED
    failing = run_tool([str(script("failing", "echo why >&2; exit 9"))])
    assert (failing.state, failing.exit_status, failing.detail) == (State.FAILED, 9, "why")


def test_a_wedged_driver_does_not_hang_the_snapshot(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a tool that hangs the rest is still observed, and the tool is not started again."""
    tool = script("nvidia-smi", 'echo x >> "$0.count"; exec sleep 60')
    count = tool.with_name("nvidia-smi.count")
    folder = str(tool.parent)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("heavylift.preflight.snapshot.run_tool", _impatient)
    found = take_snapshot().observations
    assert found["tool:nvidia-smi -q -x"].state is State.TIME_LIMIT
    assert found["tool:nvidia-smi topo -m"].state is State.NOT_RUN
    assert found["read:/proc/meminfo"].state is State.OK
    assert count.read_text("utf-8").count("x") == 1


def test_without_an_engine_only_the_driver_is_asked() -> None:
    """Its libraries need no engine; of what does, it is said that there is none."""
    steps = {
        key.removeprefix("engine:"): found
        for key, found in take_snapshot().observations.items()
        if key.startswith("engine:")
    }
    assert steps.keys() == ENGINE_STEPS.keys()
    missing = {name for name, found in steps.items() if found.detail == "no_engine_python"}
    assert missing == ENGINE_STEPS.keys() - {"cuinit"}
    assert steps["cuinit"].state is not State.NOT_RUN


def _impatient(argv: list[str], **options: object) -> Observation:
    """The real thing with a shorter limit."""
    return run_tool(argv, limit_s=1.0) if "limit_s" not in options else run_tool(argv, limit_s=5.0)


# --- files ---------------------------------------------------------------------------------------


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[str]:
    """A folder whose files cannot be written to: a pipe that nobody reads stands in for a hang."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    yield str(path)
    path.unlink()


def test_a_read_that_hangs_costs_itself_alone(stuck: str) -> None:
    """One item that never comes back is given up; those before and after it are read."""
    before = Item(operation="read", argument="/proc/version")
    # Reading is not blocking; the speed probe opens as an engine would, and waits for a writer.
    hanging = Item(operation="speed", argument=stuck, limit_bytes=10, limit_s=0.5)
    after = Item(operation="read", argument="/proc/uptime")
    begin = time.monotonic()
    found = observe([before, hanging, after])
    assert time.monotonic() - begin < 30
    assert [found[item.key].state for item in (before, hanging, after)] == [
        State.OK,
        State.TIME_LIMIT,
        State.OK,
    ]


def test_a_dozen_hangs_end_it(tmp_path: Path) -> None:
    """After twelve items have hung the rest is not tried."""
    items = []
    for number in range(14):
        path = tmp_path / str(number)
        os.mkfifo(path)
        items.append(Item(operation="speed", argument=str(path), limit_s=0.2))
    states = [observation.state for observation in observe(items).values()]
    assert states == [State.TIME_LIMIT] * 12 + [State.NOT_RUN] * 2


def test_errors_of_files_are_told_apart(tmp_path: Path) -> None:
    """What is not there and what is no file are two things."""
    missing = Item(operation="read", argument=str(tmp_path / "x"))
    folder = Item(operation="read", argument=str(tmp_path))
    found = observe([missing, folder])
    assert (found[missing.key].state, found[missing.key].detail) == (State.ABSENT, "ENOENT")
    assert (found[folder.key].state, found[folder.key].detail) == (State.FAILED, "EISDIR")


def test_long_files_are_cut(tmp_path: Path) -> None:
    """A file beyond its limit is cut, and that it was is said."""
    path = tmp_path / "long"
    path.write_text("a" * 100, "utf-8")
    item = Item(operation="read", argument=str(path), limit_bytes=10)
    found = observe([item])[item.key]
    assert (found.text, found.truncated) == ("a" * 10, True)


def test_room_is_that_of_the_nearest_folder(tmp_path: Path) -> None:
    """A folder that will be made has the room of the one it is made in."""
    item = Item(operation="space", argument=str(tmp_path / "a" / "b"))
    assert json.loads(observe([item])[item.key].text)["at"] == str(tmp_path)


def test_a_write_leaves_nothing(tmp_path: Path) -> None:
    """The probe for quotas writes a nameless file: the folder stays as it was."""
    item = Item(operation="write", argument=str(tmp_path), limit_bytes=4096)
    assert observe([item])[item.key].text == "written"
    assert list(tmp_path.iterdir()) == []


# --- secrets -------------------------------------------------------------------------------------


def test_secrets_of_the_environment_stay_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that steer engines are kept, those that could be secrets and all others are not."""
    monkeypatch.setenv("VLLM_API_KEY", "sk-verysecretverysecret")
    monkeypatch.setenv("HF_TOKEN", "hf_verysecretverysecret")
    monkeypatch.setenv("SOMETHING_ELSE", "private")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "eth0")
    item = Item(operation="environ")
    values = json.loads(observe([item])[item.key].text)
    assert values["NCCL_SOCKET_IFNAME"] == "eth0"
    assert not {"VLLM_API_KEY", "HF_TOKEN", "SOMETHING_ELSE"} & set(values)


def test_arguments_of_processes_stay_out() -> None:
    """A process is known by its program and module; its arguments are not kept."""
    secret = "sk-verysecretverysecret"  # noqa: S105 - a secret is what the test is about
    code = "import time; time.sleep(30)"
    argv = [sys.executable, "-c", code, "vllm", "--api-key", secret]
    pid = os.posix_spawn(sys.executable, argv, os.environ)
    try:
        item = Item(operation="process", argument=str(pid))
        text = observe([item])[item.key].text
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    assert secret not in text
    assert "--api-key" not in text


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("http_proxy=http://me:hunter22@proxy:3128", "http_proxy=http://me:[secret]@proxy:3128"),
        ('{"ApiKey": "abcdef123456"}', '{"ApiKey": "[secret]"}'),
        ("vllm serve --api-key abcdef123456 --port 1", "vllm serve --api-key [secret] --port 1"),
        ("token hf_abcdefghijklmnop here", "token [secret] here"),
        ("Authorization: Bearer abc.def", "Authorization: [secret]"),
        ("token generation 17 tokens per second", "token generation 17 tokens per second"),
    ],
)
def test_redaction(said: str, kept: str) -> None:
    """What looks like a secret is taken out, and nothing else."""
    assert without_secrets(said) == kept


# --- weights and engine --------------------------------------------------------------------------


def test_weights_are_looked_at(tmp_path: Path) -> None:
    """A folder of weights is read for defects; an LFS pointer in place of a shard is found."""
    (tmp_path / "model.safetensors").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "utf-8"
    )
    (tmp_path / "config.json").write_text('{"auto_map": {"AutoConfig": "x.y"}}', "utf-8")
    (tmp_path / "tokenization_x.py").write_text(
        "from transformers.models.gpt2 import bytes_to_unicode\n", "utf-8"
    )
    found = take_snapshot(Wanted(checkpoint=tmp_path)).observations
    report = json.loads(found[f"checkpoint:{tmp_path}"].text)
    assert [each["problem"] for each in report["defects"]] == ["lfs_pointer"]
    assert report["auto_map"] == ["config.json"]
    assert report["bytes_to_unicode"] == ["tokenization_x.py"]
    assert found[f"write:{tmp_path}"].state is State.OK
    assert found[f"speed:{tmp_path}/model.safetensors"].state is State.OK


def test_an_engine_without_torch(targets: dict[str, Target], check_facts: Facts) -> None:
    """In an interpreter without torch the steps that need it are unknown, by the package's name."""
    taken = take_snapshot(Wanted(engine_python=Path(sys.executable)))
    assert taken.observations["engine:versions"].state is State.OK
    report = judge([taken], targets["none"], check_facts)
    found = {finding.id: finding for finding in report.findings}["py.torch_build"]
    assert (found.code, found.params["probe"]) == ("doctor.unknown.package_missing", "torch")

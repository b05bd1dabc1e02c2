"""Two hosts: network namespaces with a real sshd each, a process per rank over ssh.

Runs by `make test-ssh` alone (HEAVYLIFT_TEST_SSH=1): it needs root, `ip` and `sshd`. The hosts have
networks of their own; files and process numbers they share.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from heavylift.launch import processes
from heavylift.records.deployment import Supervision
from heavylift.records.launch import LaunchSpec, RankSpec, host_token

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif("HEAVYLIFT_TEST_SSH" not in os.environ, reason="see make test-ssh"),
]

ENGINE = Path(__file__).with_name("engine.py")
HOSTS = ("10.77.13.1", "10.77.13.2")
SPACES = ("heavylift-a", "heavylift-b")
RENDEZVOUS, API, SSH = 29500, 8000, 2222
WAIT_S = 60.0


def sh(*argv: str) -> None:
    """A command that must succeed."""
    subprocess.run(argv, check=True, capture_output=True, timeout=30)


@dataclass
class Rack:
    """Two hosts. Commands run on the first."""

    folder: Path
    ssh_config: Path

    def heavylift(self, *words: str) -> tuple[int, str, str]:
        """A command on the first host."""
        result = subprocess.run(
            ["ip", "netns", "exec", SPACES[0], sys.executable, "-m", "heavylift", *words],
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return result.returncode, result.stdout, result.stderr

    def status(self) -> dict[str, Any]:
        """The first deployment."""
        _, out, _ = self.heavylift("status", "two", "--json")
        found: dict[str, Any] = json.loads(out)["deployments"][0]
        return found

    def up(self) -> tuple[int, str, str]:
        """Both ranks."""
        return self.heavylift(
            "up",
            str(recipe(self.folder / "recipe")),
            "--name=two",
            "--no-verify",
            f"--hosts={','.join(HOSTS)}",
            f"--ssh-config={self.ssh_config}",
        )


def recipe(folder: Path) -> Path:
    """Two nodes, the second told where the first is."""
    folder.mkdir(parents=True, exist_ok=True)
    ranks = tuple(
        RankSpec(
            rank=node,
            host="",
            argv=(
                sys.executable,
                str(ENGINE),
                str(node),
                host_token("serve-0"),
                str(RENDEZVOUS),
                str(API),
            ),
            secrets={"ENGINE_API_KEY": "api-key"},
            ports={"api": API} if node == 0 else {},
            name=f"serve-{node}",
            node=node,
            serves=node == 0,
        )
        for node in range(2)
    )
    spec = LaunchSpec(
        engine="scripted",
        engine_version="1",
        image_digest=None,
        model="m",
        model_revision=None,
        ranks=ranks,
        expected_phases=(),
        deadline_s=60,
        plan_digest="",
    )
    (folder / "launch.json").write_bytes(msgspec.json.encode(spec))
    rules = Supervision(backoff_s=0.2, grace_s=2.0, look_s=0.2)
    (folder / "supervision.json").write_bytes(msgspec.json.encode(rules))
    return folder


@pytest.fixture
def rack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rack]:
    """Two namespaces, a cable between them, a server in each."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    sshd = shutil.which("sshd") or "/usr/sbin/sshd"
    Path("/run/sshd").mkdir(exist_ok=True)
    key = tmp_path / "key"
    sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
    servers = []
    with contextlib.ExitStack() as undo:
        for space in SPACES:
            sh("ip", "netns", "add", space)
            undo.callback(sh, "ip", "netns", "del", space)
        sh(
            "ip",
            "link",
            "add",
            "hl-a",
            "netns",
            SPACES[0],
            "type",
            "veth",
            "peer",
            "name",
            "hl-b",
            "netns",
            SPACES[1],
        )
        for space, host, link in zip(SPACES, HOSTS, ("hl-a", "hl-b"), strict=True):
            for words in (
                ("addr", "add", f"{host}/24", "dev", link),
                ("link", "set", link, "up"),
                ("link", "set", "lo", "up"),
            ):
                sh("ip", "-n", space, *words)
            host_key = tmp_path / f"{space}.key"
            sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(host_key))
            config = tmp_path / f"{space}.conf"
            config.write_text(
                f"Port {SSH}\nListenAddress {host}\nHostKey {host_key}\nPidFile none\n"
                f"AuthorizedKeysFile {key}.pub\nStrictModes no\nUsePAM no\n"
                "PasswordAuthentication no\nPermitRootLogin yes\n"
            )
            server = subprocess.Popen(
                ["ip", "netns", "exec", space, sshd, "-D", "-f", str(config)],
                stderr=subprocess.DEVNULL,
            )
            servers.append(server)
            undo.callback(server.wait)
            undo.callback(server.terminate)
        ssh_config = tmp_path / "ssh_config"
        ssh_config.write_text(
            f"Host *\n  Port {SSH}\n  User root\n  IdentityFile {key}\n"
            f"  UserKnownHostsFile {tmp_path / 'known'}\n  StrictHostKeyChecking accept-new\n"
            "  LogLevel ERROR\n"
        )
        here = Rack(folder=tmp_path, ssh_config=ssh_config)
        undo.callback(here.heavylift, "down", "two")
        until(lambda: _answers(here))
        yield here


def _answers(rack: Rack) -> bool:
    return all(
        subprocess.run(
            ["ip", "netns", "exec", SPACES[0], "ssh", "-F", str(rack.ssh_config), host, "true"],
            check=False,
            capture_output=True,
            timeout=20,
        ).returncode
        == 0
        for host in HOSTS
    )


def until(condition: Callable[[], object]) -> None:
    """Until it holds."""
    end = time.monotonic() + WAIT_S
    while not condition() and time.monotonic() < end:
        time.sleep(0.1)
    assert condition()


def engines() -> list[int]:
    """The engine's processes on both hosts."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and str(ENGINE).encode() in (entry / "cmdline").read_bytes():
                pid = int(entry.name)
                found += [pid] if processes.is_running(pid, None) else []
    return found


def test_two_hosts_serve_as_one_and_stop_as_one(rack: Rack) -> None:
    """A process per rank, the second told where the first is; the key in no argument; all of it
    gone after `down`.
    """
    code, _, err = rack.up()
    assert code == 0, err
    assert "not run on any rack" in err
    status = rack.status()
    assert (status["ready"], status["url"]) == (True, f"http://{HOSTS[0]}:{API}")
    assert [each["host"] for each in status["processes"]] == list(HOSTS)
    assert sorted(each["pid"] for each in status["processes"]) == sorted(engines())
    for each in status["processes"]:
        assert "loading weights" in Path(each["log"]).read_text()
    assert rack.heavylift("down", "two")[0] == 0
    assert engines() == []


def test_a_killed_supervisor_leaves_nothing_on_either_host(rack: Rack) -> None:
    """The end of the connection is the end of the engines: no orphan holds a card."""
    assert rack.up()[0] == 0
    os.kill(rack.status()["supervisor_pid"], signal.SIGKILL)
    until(lambda: not engines())
    assert rack.status()["phase"] == "lost"
    assert rack.up()[0] == 0


def test_a_rank_that_dies_ends_all_and_all_are_started_again(rack: Rack) -> None:
    """Half an engine is none: both processes are new."""
    assert rack.up()[0] == 0
    before = [each["pid"] for each in rack.status()["processes"]]
    os.kill(before[1], signal.SIGKILL)
    until(lambda: rack.status()["attempt"] == 2 and rack.status()["ready"])
    after = [each["pid"] for each in rack.status()["processes"]]
    assert not set(before) & set(after)

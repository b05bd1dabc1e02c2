"""Shell completion: a script that the shell takes, and words that are ours, typed at a terminal."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "heavylift"]
WAIT_S = 60.0
PROMPT = "ready> "
SHELLS = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
}
STARTS = {
    "bash": f"PS1='{PROMPT}'",
    "zsh": f"PROMPT='{PROMPT}'; unsetopt zle_bracketed_paste; autoload -U compinit; compinit -D -u",
}


def script(shell: str) -> str:
    """What `heavylift completion` prints."""
    done = subprocess.run(
        [*COMMAND, "completion", shell], capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A home of its own and a `heavylift` on the path."""
    program = tmp_path / "bin" / "heavylift"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m heavylift "$@"\n')
    program.chmod(0o755)
    return os.environ | {
        "HOME": str(tmp_path),
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "TERM": "dumb",
        "LC_ALL": "C.UTF-8",
        "HEAVYLIFT_LANG": "en",
    }


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_of_its_shell(shell: str) -> None:
    """It names the command, and the shell finds no fault with it."""
    assert "heavylift" in script(shell)
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    done = subprocess.run([shell, "-n"], input=script(shell), text=True, check=False)
    assert done.returncode == 0


class Terminal:
    """A shell at a terminal, as a person sits before it."""

    def __init__(self, shell: str, environment: dict[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        self._shell = subprocess.Popen(
            SHELLS[shell],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
        )
        os.close(theirs)

    def types(self, keys: str, until: str) -> str:
        """Press keys; what is shown until a text is there."""
        os.write(self._ours, keys.encode())
        shown = ""
        ends = time.monotonic() + WAIT_S
        while until not in shown:
            left = ends - time.monotonic()
            assert left > 0, f"{keys!r} did not show {until!r}: {shown!r}"
            if select.select([self._ours], [], [], left)[0]:
                shown += os.read(self._ours, 65_536).decode(errors="replace")
        return shown

    def ends(self) -> None:
        """Leave the shell, and what it started with it."""
        os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.wait()
        os.close(self._ours)


@pytest.mark.parametrize("shell", sorted(SHELLS))
def test_a_tab_completes_commands_options_and_words(
    shell: str, environment: dict[str, str]
) -> None:
    """`pla` becomes `plan `, `--text` becomes `--text-only `, `completion zs` becomes `zsh`: the
    script is taken as `heavylift completion --help` says.
    """
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    terminal = Terminal(shell, environment)
    try:
        terminal.types(f"{STARTS[shell]}; echo be''gun\n", "begun")
        terminal.types(f'eval "$(heavylift completion {shell})"; echo ta""ken\n', "taken")
        for typed, completed in (("pla", "n"), ("plan --text", "-only"), ("completion zs", "h")):
            terminal.types(f"heavylift {typed}", typed)
            terminal.types("\t", completed)
            # The line as the shell has it: told by `echo` put before it.
            told = terminal.types("\x01echo \x05 do''ne\n", "done")
            assert f"heavylift {typed}{completed} done" in told
    finally:
        terminal.ends()


def test_fish_completes_commands_options_and_words(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """From the file that `heavylift completion --help` names, each with what it is."""
    if shutil.which("fish") is None:
        pytest.skip("no fish here")
    place = tmp_path / ".config" / "fish" / "completions" / "heavylift.fish"
    place.parent.mkdir(parents=True)
    place.write_text(script("fish"))

    def completed(words: str) -> list[str]:
        done = subprocess.run(
            ["fish", "-c", f"complete -C '{words}'"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=WAIT_S,
        )
        return [line.partition("\t")[0] for line in done.stdout.splitlines()]

    assert completed("heavylift pla") == ["plan"]
    assert completed("heavylift plan --text") == ["--text-only"]
    assert completed("heavylift completion ") == ["bash", "fish", "zsh"]

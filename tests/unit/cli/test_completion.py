"""Shell completion: a script that the shell takes, and words that are ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-m", "heavylift"]


def script(shell: str) -> str:
    """What `heavylift completion` prints."""
    done = subprocess.run(
        [*COMMAND, "completion", shell], capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_of_its_shell(shell: str) -> None:
    """It names the command, and the shell finds no fault with it."""
    assert "heavylift" in script(shell)
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    done = subprocess.run([shell, "-n"], input=script(shell), text=True, check=False)
    assert done.returncode == 0


def test_commands_and_options_are_completed() -> None:
    """`heavylift pl<TAB>` and `heavylift plan --te<TAB>`, as bash asks for them."""

    def asked(words: str, place: int) -> str:
        variables = {
            "_HEAVYLIFT_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(place),
        }
        done = subprocess.run(
            COMMAND,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | variables,
        )
        return done.stdout

    assert "plain,plan" in asked("heavylift pl", 1)
    assert "plain,--text-only" in asked("heavylift plan --te", 2)

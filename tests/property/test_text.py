"""Words of strangers on their way to a terminal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heavylift.cli.text import printable, text

words = st.text() | st.text(
    alphabet="\x00\x07\x08\x1b\r\n\t\x7f\x85\x9b\u202e\u2028[2Ja", min_size=1
)


@given(words)
def test_no_parameter_reaches_the_terminal_unescaped(name: str) -> None:
    """Whatever a checkpoint calls itself, the sentence around it prints and is one line."""
    assert text("error.PLAN051", model_type=name).isprintable()


@given(words)
def test_lines_are_kept_only_where_the_catalogue_says_so(lines: str) -> None:
    """Lines of a log stay lines, each indented, so that none passes for one of ours."""
    shown = text("error.RUN011", exit_code=1, log="l", lines=lines)
    _, *rest = shown.split("\n")
    assert all(line.startswith("  ") and line.isprintable() for line in rest)
    assert len(rest) == len(lines.splitlines())


@given(st.text(alphabet=st.characters(categories=["L", "N", "P", "S"])))
def test_what_prints_is_left_alone(name: str) -> None:
    """Letters of every script pass as they are."""
    assert printable(name) == name

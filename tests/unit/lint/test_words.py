"""The splitter of shell text into words."""

from __future__ import annotations

import pytest

from heavylift.lint.words import split


def texts(source: str) -> list[list[str]]:
    """The words of each command as plain text."""
    return [[word.text for word in command] for command in split(source).commands]


@pytest.mark.parametrize(
    ("source", "commands"),
    [
        ("a b\tc", [["a", "b", "c"]]),
        ("a 'b c' \"d e\"", [["a", "b c", "d e"]]),
        ("a\\ b c", [["a b", "c"]]),
        ('"a \\"b\\" $c"', [['a "b" $c']]),
        ("a \\\n  b", [["a", "b"]]),
        ('"a\\\nb"', [["ab"]]),
        ("a; b && c | d & e", [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ("a\nb", [["a"], ["b"]]),
        ("a # not b\nc", [["a"], ["c"]]),
        ("a#b", [["a#b"]]),
        ("a > /dev/null 2>&1 b", [["a", "b"]]),
        ("a=$(b c) d", [["a=$(b c)", "d"]]),
        ("a `b c` d", [["a", "`b c`", "d"]]),
        ("${A:-b c} d", [["${A:-b c}", "d"]]),
        ("${A d", [["${A", "d"]]),
        ("''", [[""]]),
        ("a 8", [["a", "8"]]),
    ],
)
def test_sound_text(source: str, commands: list[list[str]]) -> None:
    """Sound shell text splits as a shell splits it."""
    assert texts(source) == commands


@pytest.mark.parametrize(
    ("source", "commands", "repair"),
    [
        ("a \\ --b \\ c", [["a", "--b", "c"]], "lost_line_breaks"),
        ("a \\", [["a"]], "lost_line_breaks"),
        ("a \\  \n --b", [["a", "--b"]], "space_after_backslash"),
        ("a\n  --b 1\n  -c 2", [["a", "--b", "1", "-c", "2"]], "lost_continuations"),
        ("a 'b c", [["a", "b c"]], "open_quote"),
    ],
)
def test_what_copying_broke(source: str, commands: list[list[str]], repair: str) -> None:
    """What copying broke is read as it was meant, and said."""
    assert texts(source) == commands
    assert split(source).repairs == [repair]


def test_a_sentences_apostrophe_opens_no_quote() -> None:
    """Here's, don't: what stands around a command is no shell, a quote in a word still is one."""
    found = split("Here's it, don't stop:\na 'b c' d'e f'")
    assert [word.text for word in found.commands[-1]] == ["a", "b c", "de f"]
    assert found.repairs == []


def test_json_without_quotes_is_one_word() -> None:
    """An unquoted JSON object is one word that says so; an unfinished one is not."""
    words = split('a --x {"b": [1, "}"], "c": {"d": 2}} --y={"e":1} {f').commands[0]
    assert [word.text for word in words] == [
        "a",
        "--x",
        '{"b": [1, "}"], "c": {"d": 2}}',
        '--y={"e":1}',
        "{f",
    ]
    assert [word.loose_json for word in words] == [False, False, True, True, False]
    assert texts('{"a": 1') == [["{a:", "1"]]


def test_placeholders_are_words() -> None:
    """A placeholder in angle brackets is a word, a redirection is none."""
    assert texts("a --m <your model> < in") == [["a", "--m", "<your model>"]]
    assert texts("a<b>c x<") == [["a<b>c", "x"]]


def test_arrays_keep_their_items() -> None:
    """An array assignment carries its elements over lines."""
    word = split("A=(--b 1\n --c)").commands[0][0]
    assert word.items is not None
    assert [item.text for item in word.items] == ["--b", "1", "--c"]
    open_one = split("A=(--b").commands[0][0]
    assert open_one.items is not None
    assert len(open_one.items) == 1


def test_comments_are_kept_apart() -> None:
    """Comments are no words and are handed on."""
    out = split("# on 8x H200\na # here\n#")
    assert out.comments == ["on 8x H200", "here", ""]
    assert [[word.text for word in command] for command in out.commands] == [["a"]]


def test_an_escape_at_the_end_is_dropped() -> None:
    """A lone backslash inside a word at the very end says nothing."""
    assert texts("ab\\") == [["ab"]]


def test_openings_alone_are_read_once() -> None:
    """A text of openings that never close is read in time that grows with its length."""
    for opening in ('{"a": ', "$(", "a=(", "'", "${"):
        assert split(opening * 1000).commands

"""The language of sizes in facts files."""

from __future__ import annotations

import pytest

from heavylift.facts.expressions import ExpressionError, evaluate, names

DIMS = {"layers": 93, "block": 12, "heads": 96, "dim": 128, "none": 0}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (7, 7),
        ("7", 7),
        ("heads*dim", 12288),
        ("heads + dim - 1", 223),
        ("2*(heads + 1)", 194),
        ("heads/4", 24),
        ("ceil(layers/block)", 8),
        ("ceil(heads/block)", 8),
        ("ceil((layers - 94)/2)", 0),
        ("layers/block*4", 31),
    ],
)
def test_expressions_evaluate_exactly(expression: str | int, value: int) -> None:
    """Sums, products, exact quotients and `ceil`; 93/12*4 stays exact on the way."""
    assert evaluate(expression, DIMS) == value


@pytest.mark.parametrize(
    "expression",
    [
        "layers/block",  # 7.75
        "layers/none",
        "unknown",
        "heads +",
        "",
        "True",
        "1.5",
        "'text'",
        "-heads",
        "heads**2",
        "heads//2",
        "heads % 5",
        "floor(heads/5)",
        "ceil()",
        "ceil(1, 2)",
        "ceil(x=1)",
        "ceil",
        "heads.bit_length()",
        "[heads][0]",
        "heads if heads else 1",
        "__import__('os')",
        "\0",
        "1+" * 100 + "1",
    ],
)
def test_everything_else_is_refused(expression: str) -> None:
    """Anything beyond the language, or a result that is no whole number, is an ExpressionError."""
    with pytest.raises(ExpressionError):
        evaluate(expression, DIMS)


def test_an_unknown_name_is_named() -> None:
    """The error says which name is unknown."""
    with pytest.raises(ExpressionError, match="heads\\*wdith: wdith"):
        evaluate("heads*wdith", DIMS)


def test_names_lists_what_an_expression_needs() -> None:
    """Names without `ceil`; a plain number needs none; text outside the language is refused."""
    assert names("ceil(layers/block)*heads + 1") == {"layers", "block", "heads"}
    assert names(3) == frozenset()
    with pytest.raises(ExpressionError):
        names("heads +")

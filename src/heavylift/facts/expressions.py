"""Sizes as formulas over named dimensions: `linear_heads*kda_head_dim`, `ceil(layers/block)`.

Facts files write tensor shapes and buffer sizes in terms of the model's own dimensions, so that one
family file serves every model of the family. The language has whole numbers, names, `+ - *`, exact
division and `ceil(a/b)`; nothing else is accepted.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Final

_MAX_LENGTH: Final = 200

_OPERATORS: Final[Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class ExpressionError(ValueError):
    """The text is not an expression of the language, or its value is not a whole number."""


@lru_cache(maxsize=4096)
def _parse(text: str) -> ast.expr:
    if len(text) > _MAX_LENGTH:
        raise ExpressionError(text)
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError) as error:  # ValueError: a null character, a lone surrogate
        raise ExpressionError(text) from error
    _refuse_other_syntax(tree, text)
    return tree


def _refuse_other_syntax(node: ast.expr, text: str) -> None:
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return
        case ast.Name():
            return
        case ast.BinOp(op=ast.Div(), right=ast.Constant(value=0)):
            raise ExpressionError(text)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            _refuse_other_syntax(left, text)
            _refuse_other_syntax(right, text)
        case ast.Call(func=ast.Name(id="ceil"), args=[argument], keywords=[]):
            _refuse_other_syntax(argument, text)
        case _:
            raise ExpressionError(text)


def _value(node: ast.expr, dims: Mapping[str, int], text: str) -> Fraction:
    match node:
        case ast.Constant(value=int() as number):
            return Fraction(number)
        case ast.Name(id=name) if name in dims:
            return Fraction(dims[name])
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_value(left, dims, text), _value(right, dims, text))
        case ast.Call(args=[argument]):
            return Fraction(math.ceil(_value(argument, dims, text)))
        case ast.Name(id=name):
            raise ExpressionError(f"{text}: {name}")
    raise ExpressionError(text)


def evaluate(expression: str | int, dims: Mapping[str, int]) -> int:
    """The whole number `expression` stands for, with names taken from `dims`.

    Raises `ExpressionError` for an unknown name, any other syntax, a division by zero, or a result
    that is not a whole number.
    """
    if isinstance(expression, int):
        return expression
    try:
        result = _value(_parse(expression), dims, expression)
    except ZeroDivisionError as error:
        raise ExpressionError(expression) from error
    if result.denominator != 1:
        raise ExpressionError(expression)
    return result.numerator


def names(expression: str | int) -> frozenset[str]:
    """The dimension names used in `expression`.

    Raises `ExpressionError` when it is not in the language, or divides by a zero that is written.
    """
    if isinstance(expression, int):
        return frozenset()
    return frozenset(_names(_parse(expression)))


def _names(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Name(id=name):
            yield name
        case ast.BinOp(left=left, right=right):
            yield from _names(left)
            yield from _names(right)
        case ast.Call(args=[argument]):
            yield from _names(argument)

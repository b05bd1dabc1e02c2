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
from typing import Any, Final

_MAX_LENGTH: Final = 200

_OPERATORS: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
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


_Computed = Callable[[Mapping[str, int]], "int | Fraction"]


def _divide(left: int | Fraction, right: int | Fraction) -> int | Fraction:
    """The quotient, exact: whole where it is whole."""
    if isinstance(left, int) and isinstance(right, int):
        quotient, rest = divmod(left, right)
        return Fraction(left, right) if rest else quotient
    return Fraction(left) / right


_COMPUTE: Final[
    Mapping[type[ast.operator], Callable[[int | Fraction, int | Fraction], int | Fraction]]
] = {**_OPERATORS, ast.Div: _divide}


@lru_cache(maxsize=4096)
def _compiled(text: str) -> _Computed:
    """The expression as a function of the dimensions: facts are evaluated thousands of times in a
    search, and taken apart once.
    """
    return _function(_parse(text), text)


def _function(node: ast.expr, text: str) -> _Computed:
    match node:
        case ast.Constant(value=int() as number):
            return lambda _: number
        case ast.Name(id=name):
            return lambda dims: _named(dims, name, text)
        case ast.BinOp(left=left, op=op, right=right):
            compute = _COMPUTE[type(op)]
            first, second = _function(left, text), _function(right, text)
            return lambda dims: compute(first(dims), second(dims))
        case ast.Call(args=[argument]):
            inner = _function(argument, text)
            return lambda dims: math.ceil(inner(dims))
    raise ExpressionError(text)


def _named(dims: Mapping[str, int], name: str, text: str) -> int:
    if name not in dims:
        raise ExpressionError(f"{text}: {name}")
    return dims[name]


def evaluate(expression: str | int, dims: Mapping[str, int]) -> int:
    """The whole number `expression` stands for, with names taken from `dims`.

    Raises `ExpressionError` for an unknown name, any other syntax, a division by zero, or a result
    that is not a whole number.
    """
    if isinstance(expression, int):
        return expression
    if expression in dims:
        return dims[expression]
    try:
        result = _compiled(expression)(dims)
    except ZeroDivisionError as error:
        raise ExpressionError(expression) from error
    if result.denominator != 1:
        raise ExpressionError(expression)
    return result.numerator


@lru_cache(maxsize=4096)
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

"""Programs that a model is asked to write, and what they must compute. Pure: nothing is run here.

Each task is a function with a plain description in two languages; what it must return is worked
out by the reference below, and never leaves this process.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from heavylift.quality.records import Case, Question
from heavylift.stats import Chance

_CASES: Final = 4
_MARK: Final = "heavylift-result "
_BLOCK: Final = re.compile(r"```(?:python|py)?[^\n]*\n(.*?)```", re.DOTALL)
_TOKENS: Final = 2048


@dataclass(frozen=True, kw_only=True, slots=True)
class _Task:
    """A function: its name and parameters, what it does, and how its arguments are drawn."""

    signature: str
    english: str
    chinese: str
    reference: Callable[..., Any]
    draw: Callable[[Chance], list[Any]]


def _number(low: int, high: int) -> Callable[[Chance], int]:
    return lambda chance: low + int(chance() * (high - low + 1))


_SMALL, _LARGE = _number(2, 12), _number(20, 400)
_WORDS: Final = ("amber", "Birch", "cedar", "level", "ember", "noon", "Grove", "heath", "radar")


def _numbers(chance: Chance) -> list[int]:
    return [_number(-20, 60)(chance) for _ in range(_number(3, 9)(chance))]


def _words(chance: Chance) -> list[str]:
    return [_WORDS[int(chance() * len(_WORDS))] for _ in range(_number(2, 6)(chance))]


def _text(chance: Chance) -> str:
    return " ".join(_words(chance))


def _runs(text: str) -> str:
    return "".join(f"{m[0][0]}{len(m[0])}" for m in re.finditer(r"(.)\1*", text))


def _steps(number: int) -> int:
    steps = 0
    while number != 1:
        number = number // 2 if number % 2 == 0 else 3 * number + 1
        steps += 1
    return steps


def _primes(limit: int) -> list[int]:
    return [n for n in range(2, limit + 1) if all(n % d for d in range(2, int(n**0.5) + 1))]


def _gcd(a: int, b: int) -> int:
    return a if b == 0 else _gcd(b, a % b)


def _roman(number: int) -> str:
    values = (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1)
    signs = ("M", "CM", "D", "CD", "C", "XC", "L", "XL", "X", "IX", "V", "IV", "I")
    out = ""
    for value, sign in zip(values, signs, strict=True):
        out, number = out + sign * (number // value), number % value
    return out


def _nth(start: tuple[int, int], steps: int) -> int:
    one, other = start
    for _ in range(steps):
        one, other = other, one + other
    return one


def _base(number: int, base: int) -> str:
    return ("" if number < base else _base(number // base, base)) + str(number % base)


def _median(ordered: Sequence[int]) -> float:
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _moved(sign: str, shift: int) -> str:
    if not ("a" <= sign.lower() <= "z"):
        return sign
    first = ord("a") if sign.islower() else ord("A")
    return chr(first + (ord(sign) - first + shift) % 26)


def _task(
    signature: str,
    english: str,
    chinese: str,
    reference: Callable[..., Any],
    *draws: Callable[[Chance], Any],
) -> _Task:
    return _Task(
        signature=signature,
        english=english,
        chinese=chinese,
        reference=reference,
        draw=lambda chance: [draw(chance) for draw in draws],
    )


TASKS: Final[tuple[_Task, ...]] = (
    _task(
        "total_even(numbers)",
        "the sum of the even numbers of a list",
        "列表中所有偶数之和",
        lambda v: sum(x for x in v if x % 2 == 0),
        _numbers,
    ),
    _task(
        "second_largest(numbers)",
        "the second largest of the distinct numbers of a list, or None when there is none",
        "列表中不同数字里第二大的数,没有则返回 None",
        lambda v: sorted(set(v))[-2] if len(set(v)) > 1 else None,
        _numbers,
    ),
    _task(
        "vowels(text)",
        "how many of the letters a, e, i, o, u a text has, in either case",
        "文本中字母 a、e、i、o、u 的个数,不分大小写",
        lambda t: sum(c in "aeiou" for c in t.lower()),
        _text,
    ),
    _task(
        "reverse_words(text)",
        "the text with its words in reverse order, separated by one space",
        "把文本中的单词按相反顺序排列,以一个空格分隔",
        lambda t: " ".join(t.split()[::-1]),
        _text,
    ),
    _task(
        "is_palindrome(text)",
        "True when a text reads the same backwards, ignoring case and spaces",
        "忽略大小写和空格后,文本正读反读是否相同(返回布尔值)",
        lambda t: (s := t.replace(" ", "").lower()) == s[::-1],
        _text,
    ),
    _task(
        "digits(number)",
        "the sum of the decimal digits of a number",
        "一个数的各位数字之和",
        lambda n: sum(map(int, str(n))),
        _LARGE,
    ),
    _task(
        "primes(limit)",
        "the list of all primes up to and including limit",
        "不超过 limit(含)的所有质数的列表",
        _primes,
        _number(10, 60),
    ),
    _task(
        "common_divisor(a, b)",
        "the greatest common divisor of two numbers",
        "两个数的最大公约数",
        _gcd,
        _LARGE,
        _LARGE,
    ),
    _task(
        "fibonacci(n)",
        "the n-th Fibonacci number, where fibonacci(0) is 0 and fibonacci(1) is 1",
        "第 n 个斐波那契数,fibonacci(0) 为 0,fibonacci(1) 为 1",
        lambda n: _nth((0, 1), n),
        _number(2, 25),
    ),
    _task(
        "hailstone(n)",
        "how many steps the rule 'half when even, else three times plus one' takes from n to 1",
        "按“偶数除以二,奇数乘三加一”的规则,从 n 到 1 需要多少步",
        _steps,
        _number(2, 40),
    ),
    _task(
        "run_lengths(text)",
        "each run of one sign as the sign and its length, so that 'aab' gives 'a2b1'",
        "把连续相同的字符写成字符加次数,例如 'aab' 得到 'a2b1'",
        _runs,
        _text,
    ),
    _task("roman(number)", "a number in Roman numerals", "把一个数写成罗马数字", _roman, _LARGE),
    _task(
        "differences(numbers)",
        "the list of differences between each number and the one before it",
        "列表中每个数与前一个数之差的列表",
        lambda v: [b - a for a, b in pairwise(v)],
        _numbers,
    ),
    _task(
        "rotate(numbers, steps)",
        "the list rotated to the right by so many steps",
        "把列表向右循环移动 steps 步",
        lambda v, k: v[-(k % len(v)) :] + v[: -(k % len(v))] if k % len(v) else v,
        _numbers,
        _SMALL,
    ),
    _task(
        "count_words(words)",
        "a dict of how often each word occurs, in lower case",
        "各单词(转为小写)出现次数的字典",
        lambda w: {x: [y.lower() for y in w].count(x) for x in {y.lower() for y in w}},
        _words,
    ),
    _task(
        "longest(words)",
        "the first of the longest words",
        "最长的单词,若有多个取第一个",
        lambda w: max(w, key=len),
        _words,
    ),
    _task(
        "in_base(number, base)",
        "a number written in a base from 2 to 9, as text",
        "把一个数写成 2 到 9 进制的字符串",
        _base,
        _LARGE,
        _number(2, 9),
    ),
    _task(
        "transpose(width, height)",
        "a list of width lists of height numbers each, where entry [x][y] is x * height + y",
        "一个含 width 个列表的列表,每个列表有 height 个数,第 [x][y] 项为 x * height + y",
        lambda w, h: [[x * h + y for y in range(h)] for x in range(w)],
        _number(2, 4),
        _number(2, 4),
    ),
    _task(
        "median(numbers)",
        "the median of a list; of an even count the mean of the middle two",
        "列表的中位数;个数为偶数时取中间两数的平均值",
        lambda v: _median(sorted(v)),
        _numbers,
    ),
    _task(
        "caesar(text, shift)",
        "the text with each letter a-z and A-Z moved on by shift places in "
        "its alphabet, other signs unchanged",
        "把文本中的字母 a-z、A-Z 在字母表中后移 shift 位,其他字符不变",
        lambda t, k: "".join(_moved(c, k) for c in t),
        _text,
        _SMALL,
    ),
)


def programs(chance: Chance, count: int) -> tuple[Question, ...]:
    """Tasks to write a function, in English and Chinese by turns."""
    return tuple(
        _question(TASKS[number // 2 % len(TASKS)], number, chance) for number in range(count)
    )


def _question(task: _Task, number: int, chance: Chance) -> Question:
    name = task.signature.partition("(")[0]
    drawn = [task.draw(chance) for _ in range(_CASES)]
    cases = tuple(
        Case(
            arguments=json.dumps(arguments),
            expected=json.dumps(task.reference(*arguments), sort_keys=True),
        )
        for arguments in drawn
    )
    english = (
        f"Write a Python function {task.signature} that returns {task.english}. Answer with one "
        "code block that holds the function and nothing else."
    )
    chinese = (
        f"请写一个 Python 函数 {task.signature},返回{task.chinese}。"
        "只用一个代码块回答,其中只有该函数。"
    )
    return Question(
        id=f"code-written-{number}",
        group="code",
        language="en" if number % 2 == 0 else "zh",
        text=english if number % 2 == 0 else chinese,
        function=name,
        cases=cases,
        max_tokens=_TOKENS,
    )


def program(question: Question, text: str) -> str | None:
    """The program that shows what the function in an answer returns; None without a function.

    It prints a line per case; the expected values are not in it.
    """
    blocks = _BLOCK.findall(text) or [text]
    source = next((block for block in blocks if f"def {question.function}(" in block), None)
    if source is None:
        return None
    calls = "\n".join(
        f"print({_MARK!r} + __json.dumps({question.function}(*__json.loads({case.arguments!r})), "
        "sort_keys=True))"
        for case in question.cases
    )
    return f"{source}\n\nimport json as __json\n{calls}\n"


def returned(output: str) -> tuple[str, ...]:
    """What the function returned for each case, as JSON."""
    lines = [line for line in output.splitlines() if line.startswith(_MARK)]
    return tuple(line.removeprefix(_MARK) for line in lines)


def is_right(question: Question, output: str) -> bool:
    """True when every case returned what it must."""
    values = returned(output)
    return len(values) == len(question.cases) and all(
        _same(value, case.expected) for value, case in zip(values, question.cases, strict=True)
    )


def _same(value: str, expected: str) -> bool:
    try:
        return bool(json.loads(value) == json.loads(expected))
    except ValueError:
        return False

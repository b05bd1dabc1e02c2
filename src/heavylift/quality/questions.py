"""Questions with checkable answers in five groups, in English and Chinese, made here. Pure.

Facts come from a table; the others are made from a seed, so that no model has seen them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from heavylift.quality.records import Question
from heavylift.stats import Chance

PER_GROUP: Final = 40
"""Questions per group: half in each language, but for Chinese understanding."""
_SHORT: Final = 1024
_LONG: Final = 2048

# question in English | answer | question in Chinese | answer
_FACTS: Final = """
capital of France|Paris|法国的首都|巴黎
capital of Japan|Tokyo|日本的首都|东京
capital of Egypt|Cairo|埃及的首都|开罗
capital of Canada|Ottawa|加拿大的首都|渥太华
capital of Norway|Oslo|挪威的首都|奥斯陆
capital of Kenya|Nairobi|肯尼亚的首都|内罗毕
capital of Peru|Lima|秘鲁的首都|利马
capital of Portugal|Lisbon|葡萄牙的首都|里斯本
chemical symbol of gold|Au|金的化学符号|Au
chemical symbol of iron|Fe|铁的化学符号|Fe
chemical symbol of sodium|Na|钠的化学符号|Na
largest planet of the solar system|Jupiter|太阳系最大的行星|木星
planet nearest to the Sun|Mercury|离太阳最近的行星|水星
author of Hamlet|Shakespeare|《哈姆雷特》的作者|莎士比亚
author of Don Quixote|Cervantes|《堂吉诃德》的作者|塞万提斯
physicist who published general relativity|Einstein|发表广义相对论的物理学家|爱因斯坦
highest mountain on Earth above the sea|Everest|世界海拔最高的山峰|珠穆朗玛
largest ocean|Pacific|世界最大的海洋|太平洋
currency of Japan|yen|日本的货币|日元|日圆
language spoken by most people in Brazil|Portuguese|巴西的官方语言|葡萄牙语
"""

_NAMES: Final = (("Ana", "安娜"), ("Ben", "小本"), ("Chen", "小陈"), ("Dora", "朵拉"))
_GOODS: Final = (("apples", "苹果"), ("books", "书"), ("stamps", "邮票"), ("coins", "硬币"))


def questions(chance: Chance, prose: str, per_group: int = PER_GROUP) -> tuple[Question, ...]:
    """All questions: `per_group` of each group. `prose` fills the long ones."""
    makers: tuple[tuple[str, Callable[[Chance, int], Question]], ...] = (
        ("logic", _logic),
        ("code", _code),
        ("chinese", _chinese),
        ("summary", lambda chance, number: _summary(chance, number, prose)),
    )
    made = [make(chance, number) for _, make in makers for number in range(per_group)]
    return (*_facts(per_group), *made)


def _facts(per_group: int) -> Iterator[Question]:
    rows = [row.split("|") for row in _FACTS.strip().splitlines()]
    for number in range(per_group):
        row = rows[number // 2 % len(rows)]
        if number % 2 == 0:
            text = f"What is the {row[0]}? Answer in one or two words."
            if row[0].startswith(("author", "physicist")):
                text = f"Who is the {row[0]}? Answer with the name."
            expected = row[1]
        else:
            text = f"{row[2]}是什么(或谁)?请只用一个词回答。"
            expected = "|".join(row[3:])
        yield Question(
            id=f"facts-{number}",
            group="facts",
            language="en" if number % 2 == 0 else "zh",
            text=text,
            expected=(expected,),
            max_tokens=_SHORT,
        )


def _logic(chance: Chance, number: int) -> Question:
    """Arithmetic in several steps, told as a story."""
    has, gets, gives, boxes = (2 + int(chance() * span) for span in (30, 20, 12, 6))
    name, goods = (_NAMES[int(chance() * 4)], _GOODS[int(chance() * 4)])
    gives = min(gives, has + gets - 1)
    result = (has + gets - gives) * boxes
    if number % 2 == 0:
        text = (
            f"{name[0]} has {has} {goods[0]}, gets {gets} more and gives {gives} away. "
            f"Then a friend brings so many that {name[0]} has {boxes} times as many as were left. "
            "How many are there now? End with the number."
        )
    else:
        text = (
            f"{name[1]}有{has}个{goods[1]},又得到{gets}个,送出{gives}个。"
            f"然后数量变成剩下的{boxes}倍。现在一共有多少个?请以数字结尾。"
        )
    return _numbered("logic", number, text, result)


def _code(chance: Chance, number: int) -> Question:
    """What a short program prints; the answer is worked out here, nothing is run."""
    start, step, end = (1 + int(chance() * span) for span in (5, 4, 20))
    end += start + 3 * step
    barred = 2 + int(chance() * 3)
    kept = [value for value in range(start, end, step) if value % barred]
    program = (
        f"total = 0\nfor value in range({start}, {end}, {step}):\n"
        f"    if value % {barred} != 0:\n        total += value\nprint(total)"
    )
    asked = (
        "What does this Python program print? End with the number."
        if number % 2 == 0
        else "下面的 Python 程序输出什么?请以数字结尾。"
    )
    return _numbered("code", number, f"{asked}\n\n{program}", sum(kept))


def _chinese(chance: Chance, number: int) -> Question:
    """Understanding of a Chinese text: who, what and how many, told in a roundabout way."""
    first, second = (10 + int(chance() * 50) for _ in range(2))
    name, other = _NAMES[number % 4][1], _NAMES[(number + 1) % 4][1]
    goods = _GOODS[int(chance() * 4)][1]
    text = (
        f"{name}原本打算买{first}个{goods},可是店里只剩下{second}个,全被{other}先买走了。"
        f"第二天店里又到了货,{name}才按原来的打算买到。"
        f"请问第二天{name}买了多少个{goods}?请以数字结尾。"
    )
    return _numbered("chinese", number, text, first)


def _summary(chance: Chance, number: int, prose: str) -> Question:
    """A long text with three facts planted in it, each of which the summary must keep."""
    codes = [str(100 + int(chance() * 900)) for _ in range(3)]
    planted = (
        f" The bridge of the northern road has {codes[0]} steps. ",
        f" The archive of the town holds {codes[1]} maps. ",
        f" The ferry to the island carries {codes[2]} people. ",
    )
    start = int(chance() * max(1, len(prose) - 6000))
    parts = [prose[start + 1500 * part : start + 1500 * (part + 1)] for part in range(4)]
    body = "".join(f"{part}{fact}" for part, fact in zip(parts, (*planted, ""), strict=True))
    asked = (
        "Summarise what this text says about the bridge, the archive and the ferry, with numbers."
        if number % 2 == 0
        else "请总结这段文字关于桥、档案馆和渡船的内容,并写出数字。"
    )
    return Question(
        id=f"summary-{number}",
        group="summary",
        language="en" if number % 2 == 0 else "zh",
        text=f"{body}\n\n{asked}",
        expected=tuple(codes),
        max_tokens=_LONG,
    )


def _numbered(group: str, number: int, text: str, result: int) -> Question:
    language = "zh" if group == "chinese" or number % 2 else "en"
    return Question(
        id=f"{group}-{number}",
        group=group,
        language=language,
        text=text,
        number=result,
        max_tokens=_SHORT,
    )

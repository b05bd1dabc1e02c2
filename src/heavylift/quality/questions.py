"""Questions with checkable answers in five groups, in English and Chinese, made here. Pure.

Facts come from a table; the others are made from a seed, so that no model has seen them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from heavylift.quality.records import Question
from heavylift.stats import Chance

PER_GROUP: Final = 80
"""Questions per group: half in each language. Those about Chinese texts are asked in both."""
_TRIES: Final = 50
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
capital of Finland|Helsinki|芬兰的首都|赫尔辛基
capital of Argentina|Buenos Aires|阿根廷的首都|布宜诺斯艾利斯
capital of Thailand|Bangkok|泰国的首都|曼谷
capital of Greece|Athens|希腊的首都|雅典
capital of Poland|Warsaw|波兰的首都|华沙
capital of Cuba|Havana|古巴的首都|哈瓦那
capital of Vietnam|Hanoi|越南的首都|河内
chemical symbol of silver|Ag|银的化学符号|Ag
chemical symbol of lead|Pb|铅的化学符号|Pb
chemical symbol of mercury|Hg|汞的化学符号|Hg
largest animal on Earth|blue whale|地球上最大的动物|蓝鲸
hardest natural mineral|diamond|自然界最硬的矿物|金刚石|钻石
planet with the brightest rings|Saturn|光环最明亮的行星|土星
author of War and Peace|Tolstoy|《战争与和平》的作者|托尔斯泰
author of the Divine Comedy|Dante|《神曲》的作者|但丁
physicist who stated the three laws of motion|Newton|提出三大运动定律的物理学家|牛顿
chemist who published the periodic table in 1869|Mendeleev|1869 年发表元素周期表的化学家|门捷列夫
longest river of South America|Amazon|南美洲最长的河流|亚马孙|亚马逊
currency of India|rupee|印度的货币|卢比
gas that plants take up for photosynthesis|carbon dioxide|植物光合作用吸收的气体|二氧化碳
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
    made: dict[str, Question] = {}
    for _, make in makers:
        for number in range(per_group):
            question = make(chance, number)
            for _ in range(_TRIES):
                # Small numbers meet again by chance; a question asked twice is one.
                if question.text not in made:
                    break
                question = make(chance, number)
            made[question.text] = question
    return (*_facts(per_group), *made.values())


def _facts(per_group: int) -> Iterator[Question]:
    rows = [row.split("|") for row in _FACTS.strip().splitlines()]
    for number in range(per_group):
        row = rows[number // 2 % len(rows)]
        if number % 2 == 0:
            text = f"What is the {row[0]}? Answer in one or two words."
            if row[0].startswith(("author", "physicist", "chemist")):
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
    """Arithmetic and order in several steps, told as a story: three kinds by turns."""
    return (_goods, _queue, _journey)[number // 2 % 3](chance, number)


def _goods(chance: Chance, number: int) -> Question:
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


def _queue(chance: Chance, number: int) -> Question:
    """Who stands where follows from two statements about the others."""
    before, between, behind = (1 + int(chance() * span) for span in (8, 6, 9))
    result = before + 1 + between + 1 + behind
    if number % 2 == 0:
        text = (
            f"In a queue {before} people stand before Ana. Between Ana and Ben, who stands further "
            f"back, there are {between} people. Behind Ben there are {behind}. How many people are "
            "in the queue? End with the number."
        )
    else:
        text = (
            f"队伍里安娜前面有{before}个人。小本排在安娜后面,两人之间有{between}个人。"
            f"小本后面还有{behind}个人。队伍里一共有多少人?请以数字结尾。"
        )
    return _numbered("logic", number, text, result)


def _journey(chance: Chance, number: int) -> Question:
    """A time of day, a journey in two legs with a rest between: minutes in all."""
    hours, first, rest = (1 + int(chance() * span) for span in (4, 50, 25))
    result = 60 * hours + first + rest
    if number % 2 == 0:
        text = (
            f"A train travels for {hours} hours, rests for {rest} minutes and travels for {first} "
            "minutes more. How many minutes pass in all? End with the number."
        )
    else:
        text = (
            f"一列火车行驶{hours}小时,停车{rest}分钟,再行驶{first}分钟。"
            "一共经过多少分钟?请以数字结尾。"
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


# The part that is left out | an idiom in four signs with that part as the blank.
_IDIOMS: Final = """
蛇|画_添足
牛|对_弹琴
兔|守株待_
羊|亡_补牢
马|塞翁失_
虎|狐假_威
鱼|如_得水
井|坐_观天
剑|刻舟求_
耳|掩_盗铃
火|隔岸观_
山|愚公移_
桃|投_报李
雪|_中送炭
龙|画_点睛
海|精卫填_
天|杞人忧_
竹|胸有成_
石|水滴_穿
鸟|惊弓之_
"""


def _chinese(chance: Chance, number: int) -> Question:
    """Understanding of Chinese: a roundabout story, who did what, an idiom's missing sign. Half of
    the questions about a text are asked in English.
    """
    return (_bought, _passed_on, _idiom)[number // 2 % 3](chance, number)


def _bought(chance: Chance, number: int) -> Question:
    first, second = (10 + int(chance() * 50) for _ in range(2))
    (english, name), (_, other) = _NAMES[number % 4], _NAMES[(number + 1) % 4]
    english_goods, goods = _GOODS[int(chance() * 4)]
    text = (
        f"{name}原本打算买{first}个{goods},可是店里只剩下{second}个,全被{other}先买走了。"
        f"第二天店里又到了货,{name}才按原来的打算买到。"
    )
    if number % 2 == 0:
        asked = f"How many {english_goods} did {english} ({name}) buy the next day? "
        return _numbered("chinese", number, f"{text}\n\n{asked}End with the number.", first)
    return _numbered(
        "chinese", number, f"{text}请问第二天{name}买了多少个{goods}?请以数字结尾。", first
    )


def _passed_on(chance: Chance, number: int) -> Question:
    """Who has it in the end, after it was handed on twice and nearly a third time."""
    order = sorted(range(4), key=lambda _: chance())
    names = [_NAMES[place] for place in order]
    goods = ("伞", "钥匙", "信", "地图")[int(chance() * 4)]
    text = (
        f"{names[0][1]}把{goods}交给了{names[1][1]},{names[1][1]}又转交给{names[2][1]}。"
        f"{names[2][1]}本来想再给{names[3][1]},但{names[3][1]}没有来。"
    )
    if number % 2 == 0:
        text += "\n\nWho has it in the end? Answer with the Chinese name only."
    else:
        text += f"最后{goods}在谁手里?只回答名字。"
    return _said("chinese", number, text, names[2][1])


def _idiom(_chance: Chance, number: int) -> Question:
    rows = [row.split("|") for row in _IDIOMS.strip().splitlines()]
    sign, gap = rows[number // 2 % len(rows)]
    if number % 2 == 0:
        text = f"Which Chinese character is missing in this idiom: {gap} ? Answer with it alone."
    else:
        text = f"成语“{gap}”里缺的是哪个字?只回答这个字。"
    return _said("chinese", number, text, sign)


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


def _language(number: int) -> str:
    """English and Chinese by turns."""
    return "zh" if number % 2 else "en"


def _said(group: str, number: int, text: str, expected: str) -> Question:
    return Question(
        id=f"{group}-{number}",
        group=group,
        language=_language(number),
        text=text,
        expected=(expected,),
        max_tokens=_SHORT,
    )


def _numbered(group: str, number: int, text: str, result: int) -> Question:
    return Question(
        id=f"{group}-{number}",
        group=group,
        language=_language(number),
        text=text,
        number=result,
        max_tokens=_SHORT,
    )

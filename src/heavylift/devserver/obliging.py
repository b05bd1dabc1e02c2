"""The obliging mind: a scripted engine that does what it is asked, so that checks can pass. Pure.

It recalls numbers it was told, adds, counts, repeats, sees our own pictures, calls tools and fills
JSON schemas. Each `Defect` is one thing it then does wrong, as servers in the field have done.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from heavylift.devserver.scenario import Defect, Reply, ToolCall
from heavylift.devserver.schema_examples import example
from heavylift.devserver.spoiling import spoilt
from heavylift.pictures import COLOURS, Picture, decode_png, read_number, read_shape

_MARKERS: Final = ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>")
_TOKEN: Final = re.compile(r"\w{1,6}|[^\w\s]")
_WORDS: Final = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath")
_WIDEST: Final = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """A request that is refused, with 400 unless `status` says otherwise."""

    message: str
    status: int = 400


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ask:
    """What a request comes down to."""

    body: Mapping[str, Any]
    messages: Sequence[Mapping[str, Any]]
    number: int
    defects: frozenset[Defect]

    @property
    def question(self) -> str:
        """The text of the last message."""
        return plain_text(self.messages[-1].get("content")) if self.messages else ""

    @property
    def everything(self) -> str:
        """The text of all messages."""
        return "\n".join(plain_text(message.get("content")) for message in self.messages)

    @property
    def tools(self) -> list[Mapping[str, Any]]:
        """The functions on offer: of the request, and of system messages that declare some."""
        listed = self.body.get("tools")
        tools = list(listed) if isinstance(listed, list) else []
        if Defect.DYNAMIC_TOOLS_IGNORED not in self.defects:
            tools += [tool for each in self.declarations for tool in _listed(each["tools"])]
        return [tool["function"] for tool in tools]

    @property
    def declarations(self) -> list[Mapping[str, Any]]:
        """The messages that declare tools."""
        return [message for message in self.messages if "tools" in message]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def oblige(body: Mapping[str, Any], reply: Reply, number: int) -> Reply | Refusal:
    """The reply to a request, with the reply's defects. `number` counts requests from 1."""
    messages = [message for message in body.get("messages", ()) if isinstance(message, dict)]
    defects = frozenset(reply.defects)
    ask = _Ask(body=body, messages=messages, number=number, defects=defects)
    pictures = _pictures(ask)
    if isinstance(pictures, Refusal):
        return pictures
    if Defect.EFFORT_REFUSED in defects and any(name in body for name in _EFFORTS):
        return Refusal(message="unknown field")
    if Defect.DYNAMIC_TOOLS_UNCHECKED not in defects and not all(
        map(_makes_sense, ask.declarations)
    ):
        return Refusal(message="tools are declared in system messages, each with its own name")
    calls = _calls(ask)
    text = "" if calls else _stopped(_answer(ask, pictures), ask)
    obliging = msgspec.structs.replace(
        reply,
        text=text,
        tool_calls=calls,
        reasoning=reply.reasoning if _thinks(body) else None,
    )
    for defect in reply.defects:
        obliging = spoilt(obliging, defect, body)
    return obliging


def count_tokens(body: Mapping[str, Any], reply: Reply) -> int:
    """Tokens of the prompt: short pieces of words and single signs, thinking of earlier turns
    included. Markers in text are ordinary text.
    """
    texts = []
    for message in body.get("messages", ()):
        if isinstance(message, dict):
            texts.append(plain_text(message.get("content")))
            if Defect.REASONING_DROPPED not in reply.defects:
                texts.append(str(message.get("reasoning_content") or ""))
    if "tools" in body:
        texts.append(msgspec.json.encode(body["tools"]).decode())
    text = "\n".join(texts)
    if Defect.MARKERS_SPECIAL in reply.defects:
        for marker in _MARKERS:
            text = text.replace(marker, " x ")
    template = 11 if Defect.TEMPLATE_CHANGED in reply.defects else 4
    return template + len(_TOKEN.findall(text))


def plain_text(content: Any) -> str:
    """The text of a message's content, in either of its forms."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return " ".join(part.get("text", "") for part in content if isinstance(part, dict))
    return ""


# --- answers -------------------------------------------------------------------------------------


_EFFORTS: Final = ("reasoning_effort", "thinking", "chat_template_kwargs")
"""Fields in which clients ask for thinking, or for how much of it."""


def _thinks(body: Mapping[str, Any]) -> bool:
    thinking = body.get("thinking")
    return not (isinstance(thinking, dict) and thinking.get("type") == "disabled")


def _answer(ask: _Ask, pictures: Sequence[Picture]) -> str:
    ways: tuple[Callable[[_Ask, Sequence[Picture]], str | None], ...] = (
        _structured,
        _seen,
        _repeated,
        _recalled,
        _tool_result,
        _added,
        _counted,
    )
    for way in ways:
        answer = way(ask, pictures)
        if answer is not None:
            return answer
    return _musing(ask)


def _structured(ask: _Ask, _: Sequence[Picture]) -> str | None:
    wanted = ask.body.get("response_format")
    if not isinstance(wanted, dict) or wanted.get("type") == "text":
        return None
    if wanted.get("type") == "json_object":
        return '{"answer": 4}'
    schema = wanted["json_schema"]["schema"]
    return msgspec.json.encode(example(schema, schema)).decode()


def _seen(ask: _Ask, pictures: Sequence[Picture]) -> str | None:
    films = [part["video_url"]["url"] for part in _parts(ask) if part.get("type") == "video_url"]
    if films and Defect.BLIND not in ask.defects:
        return ", ".join(map(_film_colour, films))
    if not pictures:
        return None
    if Defect.BLIND in ask.defects:
        return "I see a picture."
    if "number" in ask.question:
        return " ".join(read_number(picture) for picture in pictures)
    seen = [read_shape(picture) for picture in pictures]
    return ", ".join(f"{colour} {shape}" for shape, colour in filter(None, seen))


def _repeated(ask: _Ask, _: Sequence[Picture]) -> str | None:
    match = re.search(r"exactly: (.+)", ask.question)
    return None if match is None else match[1].strip()


def _recalled(ask: _Ask, _: Sequence[Picture]) -> str | None:
    asked = re.search(r"What is the access number of (\w+)\?", ask.question)
    if asked is None:
        return None
    text = ask.everything
    told = re.search(rf"The access number of {asked[1]} is (\d+)\.", text)
    roles = [message.get("role") for message in ask.messages]
    if told is None or (Defect.CACHE_FORGETS in ask.defects and "assistant" in roles):
        return "It was not said."
    in_the_middle = len(text) / 4 < told.start() < len(text) * 3 / 4
    return "It was not said." if Defect.MIDDLE_LOST in ask.defects and in_the_middle else told[1]


def _tool_result(ask: _Ask, _: Sequence[Picture]) -> str | None:
    if not ask.messages or ask.messages[-1].get("role") != "tool":
        return None
    return f"The tool says: {ask.question}"


def _added(ask: _Ask, _: Sequence[Picture]) -> str | None:
    match = re.search(r"(\d+) \+ (\d+)", ask.question)
    return None if match is None else str(int(match[1]) + int(match[2]))


def _counted(ask: _Ask, _: Sequence[Picture]) -> str | None:
    match = re.search(r"Count from 1 to (\d+)", ask.question)
    return None if match is None else ", ".join(map(str, range(1, int(match[1]) + 1)))


def _musing(ask: _Ask) -> str:
    """Words that depend on the seed, or, when sampling without one, on the request's number."""
    seed = ask.body.get("seed")
    greedy = ask.body.get("temperature") == 0
    chosen = seed if seed is not None and Defect.SEED_IGNORED not in ask.defects else ask.number
    name = f"{0 if greedy else chosen} {ask.question}"
    digest = hashlib.blake2b(name.encode(), digest_size=24).digest()
    return " ".join(_WORDS[byte % len(_WORDS)] for byte in digest) + "."


def _stopped(text: str, ask: _Ask) -> str:
    stop = ask.body.get("stop") or ()
    if Defect.STOP_IGNORED in ask.defects:
        return text
    for sign in (stop,) if isinstance(stop, str) else stop:
        text = text.partition(sign)[0]
    return text


# --- pictures ------------------------------------------------------------------------------------


_TAKEN: Final = frozenset({"text", "image_url", "video_url", "input_audio"})
"""Parts of a message: films and sounds are heard and said nothing of."""


def _pictures(ask: _Ask) -> tuple[Picture, ...] | Refusal:
    parts = _parts(ask)
    urls = [part["image_url"]["url"] for part in parts if part.get("type") == "image_url"]
    kinds = {part.get("type") for part in parts}
    if not kinds <= _TAKEN:
        return Refusal(message=f"only these are taken: {', '.join(sorted(_TAKEN))}")
    pictures = []
    for url in urls:
        head, _, data = url.partition(";base64,")
        if not head.startswith("data:image/"):
            if Defect.PICTURE_INVENTED in ask.defects:
                continue
            return Refusal(message="only data URLs are taken")
        if Defect.PICTURE_CRASHES in ask.defects and _is_wide(data):
            return Refusal(message="CUDA out of memory", status=500)
        try:
            pictures.append(decode_png(base64.b64decode(data, validate=True)))
        except ValueError:
            if Defect.PICTURE_UNREAD not in ask.defects:
                return Refusal(message="the picture cannot be read")
    return tuple(pictures)


def _parts(ask: _Ask) -> list[Mapping[str, Any]]:
    return [
        part
        for message in ask.messages
        if isinstance(message.get("content"), list)
        for part in message["content"]
        if isinstance(part, dict)
    ]


def _film_colour(url: str) -> str:
    """The colour of a raw film's first dot, which its frames have as blue, green and red."""
    data = base64.b64decode(url.partition(";base64,")[2])
    start = data.index(b"00db") + 8
    dot = tuple(data[start : start + 3][::-1])
    return next((name for name, colour in COLOURS.items() if tuple(colour) == dot), "unknown")


def _is_wide(data: str) -> bool:
    """True for a PNG of more pixels a side than anybody draws."""
    head = base64.b64decode(data[:64])
    return int.from_bytes(head[16:20]) > _WIDEST


# --- tools ---------------------------------------------------------------------------------------

_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,255}")


def _makes_sense(message: Mapping[str, Any]) -> bool:
    """True for a declaration of tools as the format has them."""
    tools = message["tools"]
    if message.get("role") != "system" or not isinstance(tools, list):
        return False
    names = [
        tool["function"].get("name")
        for tool in tools
        if isinstance(tool, dict) and isinstance(tool.get("function"), dict)
    ]
    good = all(isinstance(name, str) and _NAME.fullmatch(name) for name in names)
    return good and len(names) == len(tools) == len(set(names))


def _calls(ask: _Ask) -> tuple[ToolCall, ...]:
    choice = ask.body.get("tool_choice", "auto")
    if Defect.TOOL_CHOICE_IGNORED in ask.defects:
        choice = "auto"
    tools = ask.tools
    if not tools or choice == "none" or ask.messages[-1].get("role") == "tool":
        return ()
    if isinstance(choice, dict):
        wanted = [tool for tool in tools if tool["name"] == choice["function"]["name"]]
    elif choice == "required" or Defect.TOOL_ALWAYS_CALLED in ask.defects:
        wanted = tools[:1]
    else:
        wanted = [tool for tool in tools if _is_spoken_of(tool["name"], ask.question)]
    pieces = 1 if Defect.TOOL_ARGUMENTS_AT_ONCE in ask.defects else 4
    cities = re.findall(r"\b(?:in|and) ([A-Z]\w+)", ask.question) or [""]
    return tuple(
        ToolCall(name=tool["name"], arguments=_arguments(tool, city), pieces=pieces)
        for tool in wanted[:1]
        for city in cities
    )


def _is_spoken_of(name: str, question: str) -> bool:
    return any(word in question.lower() for word in name.split("_")[1:])


def _arguments(tool: Mapping[str, Any], city: str) -> str:
    schema = tool.get("parameters", {})
    arguments = example(schema, schema)
    if city and isinstance(arguments, dict) and "city" in arguments:
        arguments["city"] = city
    return msgspec.json.encode(arguments).decode()

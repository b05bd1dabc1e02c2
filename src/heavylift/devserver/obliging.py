"""The obliging mind: a scripted engine that does what it is asked, so that checks can pass. Pure.

It recalls numbers it was told, adds, counts, repeats, sees our own pictures, calls tools and fills
JSON schemas. Each `Defect` is one thing it then does wrong, as servers in the field have done.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from heavylift.devserver.scenario import Defect, Reply, ToolCall
from heavylift.pictures import COLOURS, Picture, decode_png, read_number, read_shape

_MARKERS: Final = ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>")
_LEAK: Final = "<|close|>message<|sep|>"
_TOKEN: Final = re.compile(r"\w{1,6}|[^\w\s]")
_WORDS: Final = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath")
_DEEPEST_REFERENCE: Final = 12
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
        spoil = _SPOILERS.get(defect)
        obliging = obliging if spoil is None else spoil(obliging, ask)
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


def example(schema: Any, root: Mapping[str, Any], depth: int = 0) -> Any:
    """A value that a JSON schema allows, for the keywords that checks use."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST_REFERENCE:
        return None
    if "$ref" in schema:
        target: Any = root
        for key in schema["$ref"].removeprefix("#/").split("/"):
            target = target[key]
        return example(target, root, depth + 1)
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return example(schema[key][-1], root, depth + 1)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][-1]
    kind = schema.get("type", "object")
    kind = kind[0] if isinstance(kind, list) else kind
    return _EXAMPLES[kind](schema, root, depth)


def _example_object(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    properties = schema.get("properties", {})
    return {
        name: example(properties[name], root, depth + 1)
        for name in schema.get("required", properties)
    }


def _example_array(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    count = max(1, schema.get("minItems", 0))
    return [example(schema.get("items", {"type": "string"}), root, depth + 1)] * count


def _example_string(schema: Mapping[str, Any], _root: Mapping[str, Any], _depth: int) -> Any:
    text = "Zürich 中文" + "x" * schema.get("minLength", 0)
    return text[: schema.get("maxLength", len(text))]


def _example_number(schema: Mapping[str, Any], _root: Mapping[str, Any], _depth: int) -> Any:
    low, high = schema.get("minimum", 0), schema.get("maximum", math.inf)
    value = low if math.isinf(high) else (low + high) / 2
    step = schema.get("multipleOf", 1 if schema.get("type") == "integer" else None)
    if step:
        value = math.ceil(low / step) * step
    return int(value) if schema.get("type") == "integer" else float(value)


_EXAMPLES: Final[dict[str, Callable[[Mapping[str, Any], Mapping[str, Any], int], Any]]] = {
    "object": _example_object,
    "array": _example_array,
    "string": _example_string,
    "integer": _example_number,
    "number": _example_number,
    "boolean": lambda _schema, _root, _depth: True,
    "null": lambda _schema, _root, _depth: None,
}


# --- defects -------------------------------------------------------------------------------------


def _leak(reply: Reply, ask: _Ask) -> Reply:
    if not ask.body.get("stream"):
        return reply
    return msgspec.structs.replace(reply, text=f"{reply.text}{_LEAK}")


def _twice(reply: Reply, _: _Ask) -> Reply:
    return msgspec.structs.replace(reply, text=f"{reply.text}{reply.text}")


def _tools_in_thinking(reply: Reply, _: _Ask) -> Reply:
    """The thinking is never closed: the parser takes the call for more of it."""
    if not reply.tool_calls:
        return reply
    said = "".join(
        f'<|open|>tools<|sep|><|open|>call tool="{call.name}"<|sep|>{call.arguments}'
        for call in reply.tool_calls
    )
    return msgspec.structs.replace(
        reply, reasoning=f"{reply.reasoning or ''}{said}", tool_calls=(), text=""
    )


def _tools_as_text(reply: Reply, _: _Ask) -> Reply:
    if not reply.tool_calls:
        return reply
    call = reply.tool_calls[0]
    text = f'{{"name": "{call.name}", "arguments": {call.arguments}}}'
    return msgspec.structs.replace(reply, tool_calls=(), text=text)


def _tools_lost(reply: Reply, _: _Ask) -> Reply:
    if not reply.tool_calls:
        return reply
    return msgspec.structs.replace(reply, tool_calls=(), text="", finish_reason="tool_calls")


def _arguments_untyped(reply: Reply, _: _Ask) -> Reply:
    """Every value becomes text, as from a parser that does not look at the schema."""
    calls = []
    for call in reply.tool_calls:
        values = msgspec.json.decode(call.arguments, type=dict[str, Any])
        texts = {name: msgspec.json.encode(value).decode() for name, value in values.items()}
        arguments = msgspec.json.encode(texts).decode()
        calls.append(msgspec.structs.replace(call, arguments=arguments))
    return msgspec.structs.replace(reply, tool_calls=tuple(calls))


def _arguments_broken(reply: Reply, _: _Ask) -> Reply:
    calls = tuple(
        msgspec.structs.replace(call, arguments=call.arguments[:-1]) for call in reply.tool_calls
    )
    return msgspec.structs.replace(reply, tool_calls=calls)


def _thinking_in_text(reply: Reply, _: _Ask) -> Reply:
    if not reply.reasoning:
        return reply
    text = f"<think>{reply.reasoning}</think>{reply.text}"
    return msgspec.structs.replace(reply, text=text, reasoning=None)


def _no_thinking(reply: Reply, _: _Ask) -> Reply:
    return msgspec.structs.replace(reply, reasoning=None)


def _cut_thinking_as_text(reply: Reply, ask: _Ask) -> Reply:
    limit = ask.body.get("max_tokens")
    words = len((reply.reasoning or "").split())
    if limit is None or limit > words:
        return reply
    return msgspec.structs.replace(reply, text=reply.reasoning, reasoning=None)


def _mangled(reply: Reply, _: _Ask) -> Reply:
    text = (reply.text or "").encode("ascii", "replace").decode().replace("?", "\ufffd")
    return msgspec.structs.replace(reply, text=text)


def _exclaiming(reply: Reply, _: _Ask) -> Reply:
    return msgspec.structs.replace(reply, text="!" * 64)


def _json_ignored(reply: Reply, ask: _Ask) -> Reply:
    if "response_format" not in ask.body:
        return reply
    return msgspec.structs.replace(reply, text=f"Here is what you asked for: {reply.text}")


def _stream_loses_end(reply: Reply, ask: _Ask) -> Reply:
    if not ask.body.get("stream"):
        return reply
    return msgspec.structs.replace(reply, text=(reply.text or "")[:-1])


_SPOILERS: Final[dict[Defect, Callable[[Reply, _Ask], Reply]]] = {
    Defect.MARKER_LEAK: _leak,
    Defect.ANSWER_TWICE: _twice,
    Defect.THINK_CLOSE_OMITTED: _tools_in_thinking,
    Defect.TOOL_CALL_AS_TEXT: _tools_as_text,
    Defect.TOOL_CALLS_LOST: _tools_lost,
    Defect.TOOL_ARGUMENTS_UNTYPED: _arguments_untyped,
    Defect.TOOL_ARGUMENTS_BROKEN: _arguments_broken,
    Defect.THINKING_IN_TEXT: _thinking_in_text,
    Defect.THINKING_MISSING: _no_thinking,
    Defect.CUT_THINKING_AS_TEXT: _cut_thinking_as_text,
    Defect.UNICODE_MANGLED: _mangled,
    Defect.EXCLAMATIONS: _exclaiming,
    Defect.JSON_IGNORED: _json_ignored,
    Defect.STREAM_LOSES_END: _stream_loses_end,
}

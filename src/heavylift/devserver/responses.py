"""The responses protocol on the server's side: its requests as those of chat, its events. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from heavylift.devserver.render import Channel, Frame, Piece, Script, joined, tool_calls
from heavylift.devserver.scenario import Defect

PATH = "/v1/responses"


def as_chat(body: Any) -> Any:
    """The same request as one of the chat protocol; what is no such request stays as it is."""
    if not isinstance(body, Mapping) or "input" not in body:
        return body
    chat = {key: value for key, value in body.items() if key not in ("input", "instructions")}
    items = body["input"]
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    messages = list(map(_message, items)) if isinstance(items, list) else items
    if body.get("instructions"):
        messages = [{"role": "system", "content": body["instructions"]}, *messages]
    chat["messages"] = messages
    if "max_output_tokens" in body:
        chat["max_tokens"] = body["max_output_tokens"]
    if isinstance(body.get("tools"), list):
        chat["tools"] = [{"type": "function", "function": tool} for tool in body["tools"]]
    form = body.get("text", {}).get("format")
    if form is not None:
        chat["response_format"] = {"type": form["type"], "json_schema": form}
    return chat


def _message(item: Mapping[str, Any]) -> dict[str, Any]:
    kind = item.get("type", "message")
    if kind == "function_call_output":
        return {
            "role": "tool",
            "tool_call_id": item.get("call_id"),
            "content": item.get("output"),
        }
    if kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        call = {"id": item.get("call_id"), "type": "function", "function": function}
        return {"role": "assistant", "content": "", "tool_calls": [call]}
    if kind == "reasoning":
        said = "".join(part.get("text", "") for part in item.get("content") or ())
        return {"role": "assistant", "content": "", "reasoning_content": said}
    content = item.get("content")
    parts = list(map(_part, content)) if isinstance(content, list) else content
    return {"role": item.get("role"), "content": parts}


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    if part.get("type") == "input_image":
        return {"type": "image_url", "image_url": {"url": part["image_url"]}}
    return {"type": "text", "text": part.get("text", "")}


@dataclass(slots=True)
class ResponsesDialect:
    """The responses protocol: items that are added, filled and done, inside one response."""

    script: Script
    done: bytes = field(default=b"", init=False)
    _open: tuple[Channel, int] | None = field(default=None, init=False)
    _index: int = field(default=-1, init=False)

    def opening(self) -> Iterator[Frame]:
        """The response, begun."""
        yield self._frame("response.created", response={"id": "scripted", "status": "in_progress"})

    def piece(self, piece: Piece) -> Iterator[Frame]:
        """A delta, after the new item it may need."""
        if (piece.channel, piece.tool) != self._open:
            self._open = (piece.channel, piece.tool)
            self._index += 1
            yield self._frame(
                "response.output_item.added", output_index=self._index, item=self._item(piece)
            )
        kind = {
            Channel.TEXT: "response.output_text.delta",
            Channel.REASONING: "response.reasoning_text.delta",
            Channel.TOOL: "response.function_call_arguments.delta",
        }[piece.channel]
        yield self._frame(kind, output_index=self._index, delta=piece.text)

    def closing(self) -> Iterator[Frame]:
        """The whole response; its status is how it ended. Withheld with the finish reason."""
        if Defect.RESPONSES_REPEATED in self.script.reply.defects:
            # What a parser of the model's format left behind, and the answer again.
            leaked = f"<|close|>message<|sep|>{joined(self.script, Channel.TEXT)}"
            yield from self.piece(Piece(channel=Channel.TEXT, text=leaked))
        if self.script.finish_reason is not None:
            kind = "incomplete" if self.script.finish_reason == "length" else "completed"
            yield self._frame(f"response.{kind}", response=self.whole())

    def error(self, message: str) -> Frame:
        """An error event."""
        return self._frame("error", code="server_error", message=message)

    def whole(self) -> dict[str, Any]:
        """The reply as one document."""
        script = self.script
        output: list[dict[str, Any]] = []
        reasoning, text = joined(script, Channel.REASONING), joined(script, Channel.TEXT)
        if reasoning:
            part = {"type": "reasoning_text", "text": reasoning}
            output.append({"type": "reasoning", "id": "rs-0", "summary": [], "content": [part]})
        if text:
            part = {"type": "output_text", "text": text}
            output.append({"type": "message", "role": "assistant", "content": [part]})
        output += [
            {
                "type": "function_call",
                "call_id": f"call-{number}",
                "name": name,
                "arguments": arguments,
            }
            for number, (name, arguments) in enumerate(tool_calls(script))
        ]
        cut = script.finish_reason == "length"
        document: dict[str, Any] = {
            "id": "scripted",
            "object": "response",
            "model": script.model,
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": output,
        }
        if script.reply.usage:
            document["usage"] = {
                "input_tokens": script.prompt_tokens,
                "output_tokens": script.completion_tokens,
                "total_tokens": script.prompt_tokens + script.completion_tokens,
                "output_tokens_details": {"reasoning_tokens": script.reasoning_tokens},
            }
        return document

    def _item(self, piece: Piece) -> dict[str, Any]:
        if piece.channel is Channel.TEXT:
            return {"type": "message", "role": "assistant", "content": []}
        if piece.channel is Channel.REASONING:
            return {"type": "reasoning", "id": "rs-0", "summary": []}
        call = {"call_id": f"call-{piece.tool}", "name": piece.tool_name, "arguments": ""}
        return {"type": "function_call", **call}

    def _frame(self, kind: str, **fields: Any) -> Frame:
        return Frame(document={"type": kind, **fields}, name=kind)

"""A loop in which a model calls tools, and gets its own thinking back as it wrote it.

export OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=hl_…
python agent.py kimi-k3 'Which of the machines here has the most free disk?'

A model that thinks between tool calls goes on from its earlier thoughts. What it sent as
`reasoning_content` therefore goes back in the same field of the same message, byte for byte: not
stripped, not joined to the text, not shortened. Who drops it gets a model that starts over after
every call, and worse answers without any error.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import openai
from openai.types.chat import ChatCompletionChunk, ChatCompletionToolParam

MOST_STEPS = 8

Message = dict[str, Any]  # the SDK's types do not know the field of thinking
Tool = Callable[..., Any]


def free_disk(machine: str) -> dict[str, Any]:
    """A tool: any function whose result can be written as JSON."""
    known = {"gpu1": 812, "gpu2": 96, "Zürich-3": 1430}
    if machine not in known:
        raise LookupError(f"no machine {machine!r}; there are {', '.join(known)}")
    return {"machine": machine, "free_gb": known[machine]}


TOOLS: Mapping[str, Tool] = {"free_disk": free_disk}
DECLARED: list[ChatCompletionToolParam] = [
    {
        "type": "function",
        "function": {
            "name": "free_disk",
            "description": "Free disk of one of our machines (gpu1, gpu2, Zürich-3), in GB.",
            "parameters": {
                "type": "object",
                "properties": {"machine": {"type": "string"}},
                "required": ["machine"],
                "additionalProperties": False,
            },
        },
    }
]


@dataclass
class Turn:
    """An answer of the model, put together from its pieces."""

    text: str = ""
    reasoning: str = ""
    calls: dict[int, Message] = field(default_factory=dict)
    finish: str | None = None

    def take(self, chunk: ChatCompletionChunk) -> None:
        """Add a piece. Pieces are joined as they are: no strip, no newline between them."""
        for choice in chunk.choices:
            delta = choice.delta
            self.text += delta.content or ""
            # Not a field of OpenAI's protocol, so the SDK keeps it among the extras.
            self.reasoning += (delta.model_extra or {}).get("reasoning_content") or ""
            for piece in delta.tool_calls or ():
                call = self.calls.setdefault(
                    piece.index,
                    {"id": "", "type": "function", "function": {"name": "", "arguments": ""}},
                )
                call["id"] += piece.id or ""
                if piece.function is not None:
                    call["function"]["name"] += piece.function.name or ""
                    call["function"]["arguments"] += piece.function.arguments or ""
            self.finish = choice.finish_reason or self.finish

    def message(self) -> Message:
        """The message that goes back: what came, all of it, and nothing else."""
        message: Message = {"role": "assistant", "content": self.text}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.calls:
            message["tool_calls"] = [self.calls[index] for index in sorted(self.calls)]
        return message


def ask(client: openai.OpenAI, model: str, messages: list[Any], max_tokens: int) -> Turn:
    """One turn of the model."""
    turn = Turn()
    chunks = client.chat.completions.create(
        model=model,
        messages=messages,
        tools=DECLARED,
        max_tokens=max_tokens,
        stream=True,
    )
    for chunk in chunks:
        turn.take(chunk)
    return turn


def result_of(call: Message, tools: Mapping[str, Tool]) -> Message:
    """What a call gave. A mistake of the model is told to the model: it can mend it."""
    function = call["function"]
    try:
        given = json.loads(function["arguments"])
        result = tools[function["name"]](**given)
    except (LookupError, TypeError, ValueError) as problem:
        result = {"error": f"{type(problem).__name__}: {problem}"}
    content = json.dumps(result, ensure_ascii=False)
    return {"role": "tool", "tool_call_id": call["id"], "content": content}


def answered(client: openai.OpenAI, asked: argparse.Namespace) -> str | None:
    """The answer once the model calls no more tools; None when the steps run out."""
    messages: list[Message] = [{"role": "user", "content": asked.question}]
    for _ in range(MOST_STEPS):
        turn = ask(client, asked.model, messages, asked.max_tokens)
        messages.append(turn.message())
        if not turn.calls:
            return turn.text
        for call in messages[-1]["tool_calls"]:
            result = result_of(call, TOOLS)
            messages.append(result)
            shown = call["function"]
            print(f"{shown['name']}({shown['arguments']}) -> {result['content']}", file=sys.stderr)
    return None


def main() -> int:
    """0 with an answer, 1 when the steps run out, 5 when a stream broke."""
    parser = argparse.ArgumentParser(description="A model with tools.")
    parser.add_argument("model")
    parser.add_argument("question")
    parser.add_argument("--max-tokens", type=int, default=4096, help="of a turn, thinking included")
    asked = parser.parse_args()
    with openai.OpenAI() as client:
        try:
            answer = answered(client, asked)
        except openai.APIError as broken:
            print(f"the turn is not whole: {broken}", file=sys.stderr)
            return 5
    if answer is None:
        print(f"no answer after {MOST_STEPS} steps", file=sys.stderr)
        return 1
    print(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The OpenAI SDK against the gateway: a stream, a tool, a stream that breaks, and a quota.

export OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=hl_…
python openai_chat.py kimi-k3 'Why is the sky blue?'
python openai_chat.py kimi-k3 'What is the weather in Zürich?' --tools
"""

from __future__ import annotations

import argparse
import sys

import openai
from openai.types.chat import ChatCompletionToolParam

OK, BROKEN, REFUSED = 0, 5, 1

WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city, now.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


def stream(client: openai.OpenAI, asked: argparse.Namespace) -> None:
    """Print the answer as it comes, then the calls, which are whole only at the end."""
    calls: dict[int, tuple[str, str]] = {}
    with client.chat.completions.create(
        model=asked.model,
        messages=[{"role": "user", "content": asked.question}],
        tools=[WEATHER] if asked.tools else openai.omit,
        max_tokens=asked.max_tokens,
        stream=True,
        stream_options={"include_usage": True},
    ) as chunks:
        for chunk in chunks:
            for choice in chunk.choices:
                print(choice.delta.content or "", end="", flush=True)
                for piece in choice.delta.tool_calls or ():
                    name, arguments = calls.get(piece.index, ("", ""))
                    if piece.function is not None:
                        name += piece.function.name or ""
                        arguments += piece.function.arguments or ""
                    calls[piece.index] = (name, arguments)
            if chunk.usage is not None:  # in the last chunk, which has no choices
                tokens = f"{chunk.usage.prompt_tokens} + {chunk.usage.completion_tokens} tokens"
                print(f"\n[{tokens}]", file=sys.stderr)
    for name, arguments in calls.values():
        print(f"call {name} {arguments}")


def main() -> int:
    """0 when the answer is whole, 5 when the stream broke, 1 when the gateway refused."""
    parser = argparse.ArgumentParser(description="Ask a model through the gateway.")
    parser.add_argument("model")
    parser.add_argument("question")
    parser.add_argument("--tools", action="store_true")
    parser.add_argument("--max-tokens", type=int, default=1024)
    asked = parser.parse_args()
    # Address and key are in OPENAI_BASE_URL and OPENAI_API_KEY. A 429 with Retry-After is waited
    # out by the SDK, as long as the gateway says and up to two minutes; a wait of hours (tokens of
    # a day) is raised at once.
    try:
        with openai.OpenAI(max_retries=5) as client:
            stream(client, asked)
    except openai.APIStatusError as refused:
        wait = refused.response.headers.get("retry-after", "-")
        print(f"\nrefused: {refused.status_code} retry-after={wait}: {refused}", file=sys.stderr)
        return REFUSED
    except openai.APIError as broken:
        # The status was 200 long ago: what stands above is half an answer. Do not use it.
        print(f"\nthe answer is not whole: {broken}", file=sys.stderr)
        return BROKEN
    return OK


if __name__ == "__main__":
    sys.exit(main())

"""The Anthropic SDK against the gateway: a stream, a tool, a stream that breaks, and a quota.

export ANTHROPIC_BASE_URL=http://127.0.0.1:8080 ANTHROPIC_API_KEY=hl_…
python anthropic_chat.py kimi-k3 'Why is the sky blue?'
python anthropic_chat.py kimi-k3 'What is the weather in Zürich?' --tools
"""

from __future__ import annotations

import argparse
import json
import sys

import anthropic
from anthropic.types import ToolParam

OK, BROKEN, REFUSED = 0, 5, 1

WEATHER: ToolParam = {
    "name": "get_weather",
    "description": "The weather of a city, now.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}


def stream(client: anthropic.Anthropic, asked: argparse.Namespace) -> None:
    """Print the answer as it comes, then the calls, which are whole only at the end."""
    with client.messages.stream(
        model=asked.model,
        messages=[{"role": "user", "content": asked.question}],
        tools=[WEATHER] if asked.tools else anthropic.omit,
        max_tokens=asked.max_tokens,
    ) as events:
        for text in events.text_stream:
            print(text, end="", flush=True)
        message = events.get_final_message()
    usage = message.usage
    print(f"\n[{usage.input_tokens} + {usage.output_tokens} tokens]", file=sys.stderr)
    for block in message.content:
        if block.type == "tool_use":
            print(f"call {block.name} {json.dumps(block.input, ensure_ascii=False)}")


def main() -> int:
    """0 when the answer is whole, 5 when the stream broke, 1 when the gateway refused."""
    parser = argparse.ArgumentParser(description="Ask a model through the gateway.")
    parser.add_argument("model")
    parser.add_argument("question")
    parser.add_argument("--tools", action="store_true")
    parser.add_argument("--max-tokens", type=int, default=1024)
    asked = parser.parse_args()
    # Address and key are in ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY. A 429 with Retry-After is
    # waited out by the SDK, as long as the gateway says.
    try:
        with anthropic.Anthropic(max_retries=5) as client:
            stream(client, asked)
    except anthropic.APIError as problem:
        response = getattr(problem, "response", None)
        # An error event comes after the status 200: the SDK raises it with that status.
        if response is not None and response.is_error:
            wait = response.headers.get("retry-after", "-")
            print(
                f"\nrefused: {response.status_code} retry-after={wait}: {problem}", file=sys.stderr
            )
            return REFUSED
        print(f"\nthe answer is not whole: {problem}", file=sys.stderr)
        return BROKEN
    return OK


if __name__ == "__main__":
    sys.exit(main())

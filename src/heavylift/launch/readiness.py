"""Whether an OpenAI-compatible API on loopback serves: the model is listed and gives a token.

A listening port proves nothing, and a listed model little: engines list what they cannot run yet.
"""

from __future__ import annotations

import http.client
import json
from typing import Any, Final
from urllib.parse import urlsplit

_TIMEOUT_S: Final = 30.0


def why_not_ready(address: str, *, model: str, key: str) -> str | None:
    """None when `model` at `address` (`http://127.0.0.1:port`) has generated a token; otherwise the
    step that failed and how: `models: ConnectionRefusedError`, `chat: 503`.
    """
    parts = urlsplit(address)
    # http.client, not urllib: a proxy of the environment has no part in a call to this machine.
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
    step = "models"
    try:
        listed = _call(connection, "GET", "/v1/models", key, None)
        if not any(entry.get("id") == model for entry in listed["data"]):
            return "models: not listed"
        step = "chat"
        body = {
            "model": model,
            "messages": [{"role": "user", "content": "Hello"}],
            "max_tokens": 1,
            "temperature": 0,
        }
        answer = _call(connection, "POST", "/v1/chat/completions", key, body)
        return None if answer["usage"]["completion_tokens"] >= 1 else "chat: no token"
    except _Status as error:
        return f"{step}: {error}"
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError) as error:
        return f"{step}: {type(error).__name__}"
    finally:
        connection.close()


class _Status(Exception):  # noqa: N818 - an answer, not an error of ours
    """An HTTP status other than 200."""


def _call(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    key: str,
    body: dict[str, Any] | None,
) -> Any:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    response = connection.getresponse()
    content = response.read()
    if response.status != http.client.OK:
        raise _Status(str(response.status))
    return json.loads(content)

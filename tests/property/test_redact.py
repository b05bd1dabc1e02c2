"""Secrets planted anywhere in a log never survive the redaction."""

from __future__ import annotations

import json
import string

from hypothesis import assume, given
from hypothesis import strategies as st

from heavylift.redact import Redactor

_LETTERS = string.ascii_letters + string.digits
_TAIL = st.text(_LETTERS, min_size=20, max_size=40)

_TOKENS = st.one_of(
    st.builds(
        str.__add__,
        st.sampled_from(
            ("hf_", "sk-", "sk-proj-", "ghp_", "github_pat_", "glpat-", "nvapi-", "xoxb-", "AIza")
        ),
        _TAIL,
    ),
    st.builds("AKIA{}".format, st.text(string.ascii_uppercase, min_size=16, max_size=16)),
    st.builds("eyJ{}.{}.{}".format, _TAIL, _TAIL, _TAIL),
)
_FRAMES = st.sampled_from(
    (
        "{}",
        "token {}",
        "HF_TOKEN={}",
        'headers: {{"x": "{}"}}',
        "https://huggingface.co/api?key={}&x=1",
        "(Worker pid=1) INFO 11-30 07:00:00 [a.py:1] got {}, going on",
    )
)
_NAMED = st.sampled_from(
    (
        "OPENAI_API_KEY={}",
        "export VLLM_API_KEY='{}'",
        '"api_key": "{}"',
        "'api_key': '{}'",
        "--api-key {} --port 8000",
        "--api-key={}",
        "got api_key {} from the environment",
        "Authorization: Bearer {}",
        '"authorization": "Basic {}"',
        "password={}",
        "DB_PASSWORD: {}",
        "AWS_SECRET_ACCESS_KEY={}",
        "https://user:{}@host/path",
        "client_secret={}&x=1",
        "hf_token: {}",
        "auth_token={}",
        "api_key=['{}']",
        "x-api-key: {}",
        "Cookie: session={}; theme=dark",
        "GET /v1/models?token={} HTTP/1.1",
        "kubectl create secret --from-literal=token={}",
    )
)
_PLAIN = st.text(string.ascii_letters + " ._:/-", max_size=30)


@given(before=_PLAIN, frame=_FRAMES, secret=_TOKENS, after=_PLAIN, hosts=st.booleans())
def test_tokens_of_known_makes_never_survive(
    before: str, frame: str, secret: str, after: str, hosts: bool
) -> None:
    """A token that tells its maker by its first letters is taken out wherever it stands."""
    line = f"{before} {frame.format(secret)} {after}"
    assert secret not in Redactor(hosts=hosts).line(line)


@given(before=_PLAIN, frame=_NAMED, secret=_TAIL, after=_PLAIN)
def test_values_of_secret_names_never_survive(
    before: str, frame: str, secret: str, after: str
) -> None:
    """Whatever a value looks like, its name tells that it is secret.

    Words beside it that happen to hold the value too have no name, so none are made.
    """
    assume(secret not in before and secret not in after)
    line = f"{before} {frame.format(secret)} {after}"
    assert secret not in Redactor().line(line)


@given(body=st.lists(st.text(_LETTERS, min_size=64, max_size=64), min_size=1, max_size=5))
def test_private_keys_never_survive(body: list[str]) -> None:
    """All lines of a key are taken out, and the line after it is kept."""
    redactor = Redactor()
    log = ["-----BEGIN RSA PRIVATE KEY-----", *body, "-----END RSA PRIVATE KEY-----", "ready"]
    redacted = [redactor.line(line) for line in log]
    assert not any(part in line for part in body for line in redacted)
    assert redacted[-1] == "ready"


@given(parts=st.tuples(*[st.integers(0, 255)] * 4), port=st.integers(1, 65535))
def test_addresses_go_only_when_asked(parts: tuple[int, ...], port: int) -> None:
    """Addresses stay by default, for they tell ranks apart, and go with `hosts`."""
    address = ".".join(map(str, parts))
    line = f"connect to {address}:{port} failed"
    assert address in Redactor().line(line)
    assert address not in Redactor(hosts=True).line(line)


@given(user=st.text(string.ascii_lowercase, min_size=3, max_size=12))
def test_home_folders_lose_their_owner(user: str) -> None:
    """A home path keeps its shape and loses the name."""
    assert Redactor().line(f"open /home/{user}/models/a.gguf") == "open /home/[user]/models/a.gguf"


def test_numbers_about_tokens_are_no_secrets() -> None:
    """Counts of tokens and names of tokenizers stay: they are what the log is about."""
    line = "max_tokens=8192 num_tokens: 5 tokenizer='model' GPU KV cache size: 150,745 tokens"
    assert Redactor().line(line) == line


def test_json_stays_json() -> None:
    """What a program wrote as JSON can still be read as JSON."""
    document = {"api_key": 'a "quoted" b', "password": None, "hf_token": "x", "token": "", "n": 1}
    assert json.loads(Redactor().line(json.dumps(document))) == {
        "api_key": "[secret]",
        "password": None,
        "hf_token": "[secret]",
        "token": "[secret]",
        "n": 1,
    }


def test_a_word_after_token_is_no_secret() -> None:
    """Prose about tokens is kept: only a sign or an option names a value."""
    line = "token generation 17 tokens per second; 0.25 ms per token here"
    assert Redactor().line(line) == line

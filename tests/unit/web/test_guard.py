"""What stands between a browser and the pages: names, methods, origins, what may load."""

from __future__ import annotations

import re

import pytest
from tests.unit.web.conftest import Site

from heavylift.web import live
from heavylift.web.guard import is_ours

PAGES = ("/", "/live", "/part/plan", "/api/plan", "/static/page.js", "/nowhere", "/part/nope")


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("127.0.0.1:8090", True),
        ("localhost:1", True),
        ("LOCALHOST", True),
        ("[::1]:8090", True),
        ("[::1]", True),
        (None, False),
        ("", False),
        ("evil.example", False),
        ("evil.example:8090", False),
        ("127.0.0.1.evil.example:8090", False),
        ("localhost:8090@evil.example", False),
        ("localhost:", False),
        ("127.0.0.1:80:90", False),
        ("0.0.0.0:8090", False),
    ],
)
def test_only_names_of_this_machine_are_ours(host: str | None, ours: bool) -> None:
    """A page that made its own name point here (DNS rebinding) does not pass."""
    assert is_ours(host) is ours


def test_another_name_for_this_machine_is_misdirected(site: Site) -> None:
    """The answer holds nothing, on every path."""
    for answer in site.ask(*PAGES, Host="evil.example"):
        assert (answer.status, answer.text) == (421, "")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(site: Site, method: str) -> None:
    """The pages know no writing method, so there is nothing to forge."""
    assert {answer.status for answer in site.ask(*PAGES, method=method)} == {405}


def test_what_another_page_fetches_or_embeds_is_refused(site: Site) -> None:
    """By the browser's own word; a link that a person follows opens."""
    for origin in ("cross-site", "same-site"):
        fetched = site.get("/api/plan", Sec_Fetch_Site=origin, Sec_Fetch_Mode="cors")
        followed = site.get("/", Sec_Fetch_Site=origin, Sec_Fetch_Mode="navigate")
        assert (fetched.status, followed.status) == (403, 200)


def test_every_answer_carries_the_headers(site: Site) -> None:
    """Also errors and files: no inline script, no frame, no guessing of types, no referrer."""
    for answer in site.ask(*PAGES):
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert answer.headers["Referrer-Policy"] == "no-referrer"


def test_pages_need_nothing_from_elsewhere(site: Site) -> None:
    """No script, style or handler inside a page, and no resource of another host: it works on a
    rack without internet.
    """
    for answer in site.ask("/?full=1&on=8xB300", "/live"):
        assert answer.status == 200
        assert not re.search(r"<script(?![^>]*\bsrc=)", answer.text)
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=", answer.text)
        loaded = re.findall(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=\"([^\"]+)", answer.text)
        assert loaded
        assert all(address.startswith("/static/") for address in loaded)


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e%2fapp.py", "/static/app.py", "/static/"]
)
def test_only_the_files_of_the_pages_are_given(site: Site, path: str) -> None:
    """A name that is none of three is not looked up at all."""
    assert site.get(path).status == 404


def test_a_mistake_of_ours_is_said_in_words(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Status 500 and a code; no traceback on the page nor on the terminal."""
    monkeypatch.setattr(live.Watcher, "look", lambda _: 1 / 0)
    answer = site.get("/part/live")
    assert answer.status == 500
    assert "INT001" in answer.text
    assert "Traceback" not in answer.text
    assert caplog.records == []
    assert "Content-Security-Policy" in answer.headers

"""A headless Chromium, driven by the WebDriver protocol as it stands: no package is needed."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

_ARGUMENTS: Final = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
)
_BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
ELEMENT: Final = "element-6066-11e4-a52e-4f735466cecf"


def is_installed() -> bool:
    """True when the browser and its driver are on the path."""
    return _binary() is not None and shutil.which("chromedriver") is not None


def _binary() -> str | None:
    return next(filter(None, map(shutil.which, _BROWSERS)), None)


class Browser:
    """One session of a browser."""

    def __init__(self, base: str, session: str) -> None:
        self._base = f"{base}/session/{session}"

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """One command of the protocol; raises RuntimeError with the driver's own words."""
        return _call(method, f"{self._base}{path}", body)

    def open(self, url: str) -> None:
        """Go to an address and wait until it has loaded."""
        self.call("POST", "/url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns; `arguments` are its own."""
        return self.call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def run_async(self, script: str, *arguments: Any) -> Any:
        """As `run`; the script's last argument takes the result."""
        return self.call("POST", "/execute/async", {"script": script, "args": list(arguments)})

    def wait(self, condition: str, *arguments: Any, seconds: float = 60.0) -> Any:
        """Wait until an expression is true; raises AssertionError with it when it never is."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            found = self.run(f"return ({condition});", *arguments)
            if found:
                return found
            time.sleep(0.05)
        raise AssertionError(condition)

    def find(self, selector: str) -> str:
        """The element of a selector, for commands that take one."""
        found = self.call("POST", "/element", {"using": "css selector", "value": selector})
        element: str = found[ELEMENT]
        return element

    def click(self, selector: str) -> None:
        """Click as a person does: what lies under the pointer gets it."""
        self.call("POST", f"/element/{self.find(selector)}/click", {})

    def type(self, selector: str, keys: str) -> None:
        """Type into an element."""
        self.call("POST", f"/element/{self.find(selector)}/value", {"text": keys})

    def text(self, selector: str) -> str:
        """The text of an element as it is shown."""
        shown: str = self.call("GET", f"/element/{self.find(selector)}/text")
        return shown

    def press(self, *keys: str) -> None:
        """Press keys one after the other, whatever has the focus."""
        steps = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        actions = [{"type": "key", "id": "keyboard", "actions": steps}]
        self.call("POST", "/actions", {"actions": actions})

    def resize(self, width: int, height: int) -> None:
        """The size of the window."""
        self.call("POST", "/window/rect", {"width": width, "height": height})

    def prefer(self, scheme: str) -> None:
        """What the system prefers: `light` or `dark`."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.devtools("Emulation.setEmulatedMedia", {"features": features})

    def devtools(self, command: str, parameters: Any) -> Any:
        """A command of the browser's own protocol."""
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def picture(self, path: Path) -> None:
        """The whole page as a PNG."""
        answer = self.devtools("Page.captureScreenshot", {"captureBeyondViewport": True})
        path.write_bytes(base64.b64decode(answer["data"]))

    def complaints(self) -> list[str]:
        """What the console holds that is an error or a warning, since the last call."""
        entries = self.call("POST", "/se/log", {"type": "browser"})
        bad = [entry for entry in entries if entry["level"] in {"SEVERE", "WARNING"}]
        return [entry["message"] for entry in bad]


@contextmanager
def browser(language: str = "en") -> Iterator[Browser]:
    """A browser with a profile of its own, both gone afterwards."""
    with (
        tempfile.TemporaryDirectory(prefix="heavylift-browser-") as profile,
        _driver() as base,
    ):
        options = {
            "args": [*_ARGUMENTS, f"--user-data-dir={profile}", f"--lang={language}"],
            "binary": _binary(),
            "prefs": {"intl.accept_languages": language},
        }
        capabilities = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        made = _call("POST", f"{base}/session", {"capabilities": {"alwaysMatch": capabilities}})
        session = Browser(base, made["sessionId"])
        try:
            yield session
        finally:
            session.call("DELETE", "")


@contextmanager
def _driver() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["chromedriver", f"--port={port}", "--allowed-ips=127.0.0.1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    base = f"http://127.0.0.1:{port}"
    try:
        _wait_for(base, process)
        yield base
    finally:
        process.terminate()
        process.wait(10)


def _wait_for(base: str, process: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + 20
    while time.monotonic() < ends and process.poll() is None:
        try:
            if _call("GET", f"{base}/status")["ready"]:
                return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError("chromedriver")


def _call(method: str, url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310 - loopback
    try:
        with urllib.request.urlopen(request, timeout=90) as answer:  # noqa: S310 - loopback
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        told = json.load(error)["value"]
        raise RuntimeError(told["message"]) from None

"""A headless Chromium for tests, driven by its DevTools protocol over two pipes: nothing to install but the browser."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WHY = "no Chromium found: apt-get install chromium. RANKGRAD_BROWSER=required makes this an error"
# where screenshots are left to be looked at; nowhere if it is not set
SHOTS = os.environ.get("RANKGRAD_SHOTS")
# The browser reads commands from descriptor 3 and writes to 4; Popen cannot choose the numbers itself.
LAUNCHER = """
import os, sys
read, write = map(int, sys.argv[1:3])
# out of the way first: one of the two may be 3 or 4 already
read, write = os.dup(read), os.dup(write)
while read in (3, 4) or write in (3, 4):
    read, write = (os.dup(d) if d in (3, 4) else d for d in (read, write))
os.dup2(read, 3)
os.dup2(write, 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""
KEYS = {
    **{name: (name, code, "") for name, code in (("ArrowLeft", 37), ("ArrowUp", 38), ("ArrowRight", 39))},
    **{name: (name, code, "") for name, code in (("ArrowDown", 40), ("Home", 36), ("End", 35), ("Escape", 27))},
    "Tab": ("Tab", 9, ""),
    "Enter": ("Enter", 13, "\r"),
    " ": ("Space", 32, " "),
}


def found() -> str | None:
    """The browser, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One process with one tab."""

    def __init__(self, program: str, profile: Path) -> None:
        read, theirs_write = os.pipe()
        theirs_read, write = os.pipe()
        flags = [
            *("--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--no-first-run", "--disable-extensions", "--disable-background-networking", "--mute-audio"),
            f"--user-data-dir={profile}",
            "about:blank",
        ]
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", LAUNCHER, str(theirs_read), str(theirs_write), program, *flags],
            pass_fds=(theirs_read, theirs_write),
            env={**os.environ, "TMPDIR": str(profile)},  # it leaves its sockets there
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_read)
        os.close(theirs_write)
        self._read, self._write, self._rest, self._number = read, write, b"", 0
        self.session: str | None = None
        self._events: list[dict[str, Any]] = []  # came while a call waited for its answer
        self.messages: list[str] = []  # errors and warnings of the console, exceptions, what the policy refused
        self.requests: list[str] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Audits"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)
        os.close(self._write)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self._events.append(answer)

    def wait(self, event: str) -> dict[str, Any]:
        """The next event of this name: a page may be loaded before the answer to the call that asked for it comes."""
        while True:
            message = self._events.pop(0) if self._events else self._next()
            if message.get("method") == event:
                return message["params"]

    def _next(self, seconds: float = 30) -> dict[str, Any]:
        while b"\0" not in self._rest:
            assert select.select([self._read], [], [], seconds)[0], "the browser does not answer"
            part = os.read(self._read, 1 << 20)
            assert part, "the browser has ended"
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        kind, given = message.get("method"), message.get("params", {})
        if kind == "Runtime.exceptionThrown":
            details = given["exceptionDetails"]
            self.messages.append(f"exception: {details.get('exception', {}).get('description', details['text'])}")
        elif kind == "Runtime.consoleAPICalled":
            self.messages.append(f"console.{given['type']}: {[a.get('value') for a in given['args']]}")
        elif kind == "Log.entryAdded" and given["entry"]["level"] != "verbose":
            self.messages.append(f"{given['entry']['level']}: {given['entry']['text']}")
        elif kind == "Audits.issueAdded":
            self.messages.append(f"issue: {given['issue']['details']}")
        elif kind == "Network.requestWillBeSent":
            self.requests.append(given["request"]["url"])

    # ------------------------------------------------------------------------------------------------------- a page

    def open(
        self, path: Path, width: int = 1280, height: int = 900, dark: bool = False, script: bool = True, part: str = ""
    ) -> float:
        """Load a page, at a part of it if one is named; seconds until it is loaded and painted."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.call("Emulation.setEmulatedMedia", features=[scheme, still])
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.messages.clear()
        self.requests.clear()
        self._events.clear()
        start = time.monotonic()
        url = path.absolute().as_uri() + part
        try:
            self._load(url)
        except AssertionError:
            # seen once in some thousand loads: the browser lost a page. A page that is at fault fails again.
            start = time.monotonic()
            self._load("about:blank")
            self._load(url)
        if script:
            # the frame after the next one: the first is on the screen
            self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
        return time.monotonic() - start

    def _load(self, url: str) -> None:
        answer = self.call("Page.navigate", url=url)
        assert "errorText" not in answer, f"{url}: {answer['errorText']}"
        if "loaderId" not in answer:  # another part of the page that is open: nothing was loaded
            self._load("about:blank")
            self.call("Page.navigate", url=url)
        self.wait("Page.loadEventFired")

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression, awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, *keys: str) -> None:
        """Press keys one after the other."""
        for key in keys:
            shift = 8 if key.startswith("Shift+") else 0
            name = key.removeprefix("Shift+")
            code, number, text = KEYS[name]
            common = {"key": name, "code": code, "windowsVirtualKeyCode": number, "modifiers": shift}
            self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
            self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text: str) -> None:
        """Type text where the focus is."""
        self.call("Input.insertText", text=text)

    def move(self, x: float, y: float) -> None:
        """Point somewhere."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str) -> None:
        """Click in the middle of an element.

        What comes into view is laid out in the frames after the scroll (`content-visibility: auto`) and may move, so
        the point is taken when the element stood still for one frame: nobody clicks what still moves.
        """
        x, y = self.run(
            f"(async () => {{ const e = document.querySelector({json.dumps(selector)});"
            " let last = null;"
            " for (let frame = 0; frame < 60; frame++) {"
            "  e.scrollIntoView({block: 'center'});"
            "  await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));"
            "  const b = e.getBoundingClientRect(), at = [b.x + b.width / 2, b.y + b.height / 2];"
            "  if (last && at[0] === last[0] && at[1] === last[1]) return at;"
            "  last = at; }"
            " return last; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def picture(self, path: Path, selector: str | None = None) -> Path:
        """A screenshot of what is seen, or from an element downwards."""
        if selector is not None:
            self.run(f"document.querySelector({json.dumps(selector)}).scrollIntoView()")
            self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
        return path

    def pdf(self) -> bytes:
        """The page as it prints."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=False)["data"])


@contextmanager
def started(profile: Path) -> Iterator[Browser]:
    """A browser; without one the tests are skipped, or fail where it is required."""
    program = found()
    if program is None:
        if os.environ.get("RANKGRAD_BROWSER") == "required":
            pytest.fail(WHY)
        pytest.skip(WHY)
    browser = Browser(program, profile)
    yield browser
    browser.close()


def table_of(browser: Browser, kind: str) -> list[list[str]]:
    """Texts of the rows that a table shows."""
    rows: list[list[str]] = browser.run(
        f"[...document.querySelectorAll('[data-table={kind}] tbody tr')]"
        ".map(row => [...row.children].map(cell => cell.textContent))"
    )
    return rows


def shot(browser: Browser, name: str, selector: str | None = None) -> None:
    if SHOTS:
        browser.picture(Path(SHOTS) / f"{name}.png", selector)


def lands(browser: Browser, part: str) -> bool:
    """Is a section at the top, or at the end of the page, once the page has come to rest?"""
    seen, place = None, f"document.getElementById('{part}').getBoundingClientRect().top"
    for _ in range(40):
        before, seen = seen, browser.run(f"[scrollY, {place}]")
        if before == seen:
            break
        time.sleep(0.15)
    end = browser.run("scrollY + innerHeight >= document.documentElement.scrollHeight - 2")
    return bool(abs(browser.run(place) - 16) <= 2 or (end and 0 <= browser.run(place) < 900))

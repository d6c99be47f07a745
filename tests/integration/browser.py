"""Chromium without a window, driven over a pipe in its DevTools protocol: Debian's package, no driver next to it."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.integration.debian import require

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless=new",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--mute-audio",
    "--no-first-run",
    "--no-default-browser-check",
    "--remote-debugging-pipe",
)

# MLflow's pages as somebody has left them who trains models: see `Page.remember`.
MLFLOW_FOR_TRAINING = {
    "mlflow.workflowType_v1": '"machine_learning"',
    "mlflow.assistant.panelOpen_v1": "false",
    "mlflow.assistant.fab.autoOpenedOnFirstLoad_v1": "true",
}


class BrowserError(Exception):
    """The browser refuses a command, or what is waited for does not come."""


class Page:
    """One page. What goes wrong on it is kept in `problems`."""

    def __init__(self, send: int, receive: int) -> None:
        self._send, self._receive = send, receive
        self._left = b""
        self._number = 0
        self._session: str | None = None
        self.problems: list[str] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM"):
            self._ask(f"{domain}.enable")

    def resize(self, width: int, height: int, scale: float = 1.0) -> None:
        """Make the window so large."""
        self._ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )

    def log_in(self, user: str, password: str) -> None:
        """Send a name and a password with every request."""
        encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._ask("Network.setExtraHTTPHeaders", headers={"Authorization": f"Basic {encoded}"})

    def remember(self, **settings: str) -> None:
        """Have every page find these in its local storage."""
        script = f"for (const [key, value] of Object.entries({json.dumps(settings)})) localStorage.setItem(key, value)"
        self._ask("Page.addScriptToEvaluateOnNewDocument", source=f"try {{ {script} }} catch {{}}")

    def open(self, address: str) -> None:
        """Go to an address."""
        answer = self._ask("Page.navigate", url=address)
        if "errorText" in answer:
            raise BrowserError(f"{address}: {answer['errorText']}")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, waited for where it is a promise."""
        answer = self._ask("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise BrowserError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait_for(self, expression: str, seconds: float = 60.0) -> None:
        """Wait until a JavaScript expression is true.

        Raises:
            BrowserError: it does not become true.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            # Between two pages there may be no document.
            with contextlib.suppress(BrowserError):
                if self.evaluate(f"Boolean({expression})"):
                    return
            time.sleep(0.1)
        text = self.evaluate("document.body && document.body.innerText.slice(0, 2000)")
        raise BrowserError(
            f"not true within {seconds:g} seconds: {expression}; {self.problems}; the page reads:\n{text}"
        )

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self._ask("Input.insertText", text=text)

    def press_enter(self) -> None:
        """Press the key."""
        key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}
        self._ask("Input.dispatchKeyEvent", type="keyDown", text="\r", **key)
        self._ask("Input.dispatchKeyEvent", type="keyUp", **key)

    def choose_file(self, selector: str, file: Path) -> None:
        """Choose a file in an input element."""
        root = self._ask("DOM.getDocument")["root"]["nodeId"]
        node = self._ask("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self._ask("DOM.setFileInputFiles", nodeId=node, files=[str(file)])

    def screenshot(self) -> bytes:
        """Return a screenshot of the window, as a PNG."""
        return base64.b64decode(self._ask("Page.captureScreenshot", format="png")["data"])

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            data = os.read(self._receive, 1 << 20)
            if not data:
                raise BrowserError("the browser has ended")
            self._left += data
        message, self._left = self._left.split(b"\0", 1)
        answer: dict[str, Any] = json.loads(message)
        return answer

    def _note(self, event: dict[str, Any]) -> None:
        parameters = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.problems.append(parameters["exceptionDetails"].get("exception", {}).get("description", "exception"))
        elif event.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.problems.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}")


@contextmanager
def running() -> Iterator[Page]:
    """Start a browser with an empty profile, and yield a page of it.

    Raises:
        UnavailableError: none is installed, nor can be.
    """
    program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if program is None:
        require(("chromium",), ("chromium",))
        program = "chromium"
    # Its sandbox wants a user of its own.
    flags = [*_FLAGS, *(["--no-sandbox"] if os.getuid() == 0 else [])]
    read_end, send = os.pipe()
    receive, write_end = os.pipe()
    with tempfile.TemporaryDirectory(prefix="vse-chromium-", ignore_cleanup_errors=True) as profile:
        # It reads commands from file 3 and writes to file 4.
        command = f'exec "$0" "$@" 3<&{read_end} 4>&{write_end}'
        process = subprocess.Popen(
            ["bash", "-c", command, program, *flags, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(read_end, write_end),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": profile},
        )
        os.close(read_end)
        os.close(write_end)
        try:
            yield Page(send, receive)
        finally:
            os.close(send)
            process.terminate()
            process.wait(30)
            os.close(receive)

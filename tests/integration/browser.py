"""Debian's Chromium without a window, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import ConsoleMessage, Page, sync_playwright

from tests.integration.debian import require

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
# MLflow's pages as somebody has left them who trains models.
_MLFLOW_FOR_TRAINING = """try {
    localStorage.setItem("mlflow.workflowType_v1", '"machine_learning"');
    localStorage.setItem("mlflow.assistant.panelOpen_v1", "false");
    localStorage.setItem("mlflow.assistant.fab.autoOpenedOnFirstLoad_v1", "true");
} catch {}"""


@contextmanager
def running(user: str | None = None, password: str | None = None) -> Iterator[Page]:
    """Start a browser with an empty profile, and yield a page of it, which sends a name and a password if given.

    Raises:
        UnavailableError: none is installed, nor can be.
    """
    program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if program is None:
        require(("chromium",), ("chromium",))
        program = shutil.which("chromium")
    # Its sandbox wants a user of its own.
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, chromium_sandbox=os.getuid() != 0)
        credentials = {"username": user or "", "password": password or "", "send": "always"} if user else None
        context = browser.new_context(http_credentials=credentials)  # type: ignore[arg-type]
        context.set_default_timeout(60_000)
        context.add_init_script(_MLFLOW_FOR_TRAINING)
        yield context.new_page()
        browser.close()


def problems_of(page: Page) -> list[str]:
    """Return a list to which every error on a page is added from now on."""
    problems: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type == "error":
            problems.append(message.text)

    page.on("console", note)
    page.on("pageerror", lambda error: problems.append(str(error)))
    return problems

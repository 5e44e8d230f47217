"""A real browser for tests: Debian's Chromium behind Playwright, and what must hold on every page."""

import functools
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.components import COMPONENTS

# Chromium looks for nothing but the page: no updates, no accounts, no other machines.
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
)  # fmt: skip
AXE = Path(__file__).parents[2] / "build/browser/axe-core/axe.min.js"
WIDE, NARROW = 1280, 390


@contextmanager
def _chromium() -> Iterator[Browser]:
    program = shutil.which(COMPONENTS["chromium"].program)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class BrowserThread:
    """The browser, in a thread of its own: Playwright keeps an event loop running where it is used."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._started = _chromium()
        self.browser = self._thread.submit(self._started.__enter__).result(60)

    def run(self, work: Callable[..., Any], **arguments: Any) -> Any:
        """Do something with the browser; return or raise what it does."""
        return self._thread.submit(work, self.browser, **arguments).result(300)

    def close(self) -> None:
        self._thread.submit(self._started.__exit__, None, None, None).result(60)
        self._thread.shutdown()


def in_browser(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test in the browser's thread; its first parameter, `browser`, is the browser itself there."""

    @functools.wraps(test)
    def run(browser: BrowserThread, **arguments: Any) -> None:
        browser.run(test, **arguments)

    return run


@dataclass
class Window:
    """A window that remembers every complaint and every request that left the server."""

    context: BrowserContext
    page: Page
    address: str
    complaints: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)

    def open(self, path: str) -> Page:
        """Open a page and wait until it is drawn."""
        self.page.goto(self.address + path, wait_until="load")
        return self.page

    def faults(self) -> list[str]:
        """Return what axe-core finds wrong with the page, in a line each."""
        self.page.evaluate(AXE.read_text())
        found: list[dict[str, Any]] = self.page.evaluate("axe.run().then((result) => result.violations)")
        return [f"{rule['id']}: {node['target']}" for rule in found for node in rule["nodes"]]

    def sideways(self) -> int:
        """Return by how many pixels the page is wider than the window."""
        return int(self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


@contextmanager
def window(
    browser: Browser, port: int, cookies: dict[str, str], *, width: int = WIDE, scheme: str = "light", **more: Any
) -> Iterator[Window]:
    """Open a window of a signed-in user."""
    address = f"http://127.0.0.1:{port}"
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900}, **more)
    context.add_cookies([{"name": name, "value": value, "url": address} for name, value in cookies.items()])
    page = context.new_page()
    opened = Window(context, page, address)
    page.on("console", lambda message: opened.complaints.append(message.text))
    page.on("pageerror", lambda error: opened.complaints.append(str(error)))
    page.on("request", lambda request: _note(opened, request.url))
    try:
        yield opened
    finally:
        context.close()


def _note(opened: Window, url: str) -> None:
    if urlsplit(url).netloc != urlsplit(opened.address).netloc:
        opened.elsewhere.append(url)

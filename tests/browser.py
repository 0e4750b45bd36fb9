"""A headless Chromium for tests of pages; where there is none, a test says so and is skipped."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
WIDTHS = {"phone": 390, "desk": 1280}


def browser_path() -> str | None:
    """Return the browser's program, None if there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@contextmanager
def opened_browser() -> Iterator[Browser]:
    """Yield a browser; without one the test is skipped, and says why."""
    path = browser_path()
    if path is None:
        reason = f"no browser: none of {', '.join(NAMES)} is installed (apt-get install chromium-headless-shell)"
        pytest.skip(reason)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def overflow(page: Page) -> list[str]:
    """Return what stands out on the right of a page, and nothing if it fits its width."""
    found: list[str] = page.evaluate(
        """() => document.documentElement.scrollWidth > innerWidth ? ["page " + document.documentElement.scrollWidth]
        : [...document.querySelectorAll("body *")].filter((one) => one.checkVisibility()
            && one.getBoundingClientRect().right > innerWidth + 1 && !one.closest("svg, .hidden"))
          .map((one) => `${one.tagName} ${one.className}`)"""
    )
    return found


def screenshot(page: Page, folder: Path, name: str) -> Path:
    """Keep a picture of the whole page, and return its file."""
    path = folder / f"{name}.png"
    page.screenshot(path=path, full_page=True)
    return path

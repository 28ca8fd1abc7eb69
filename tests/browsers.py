"""Chromium, as the tests of pages start it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

CHROMIUM_PATH = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
)
BROWSER_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
)
BUSY_MACHINE_TIMEOUT_MS = 300_000


@contextmanager
def launch_browser() -> Iterator[Browser]:
    """Start Chromium, and end it at the end. Skips the test where there is none."""
    if CHROMIUM_PATH is None:
        pytest.skip("no Chromium on this machine")
    expect.set_options(timeout=BUSY_MACHINE_TIMEOUT_MS)
    with sync_playwright() as playwright:
        launched_browser = playwright.chromium.launch(
            executable_path=CHROMIUM_PATH, args=list(BROWSER_FLAGS)
        )
        yield launched_browser
        launched_browser.close()

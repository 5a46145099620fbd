"""Debian's Chromium with its driver: a browser that contacts only the tests' servers, for tests of the page."""

from __future__ import annotations

import shutil
import time

import pytest

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
PATIENCE_S = 60

chromium_is_there = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="there is no Chromium with its driver"
)


def start(profile, *more):
    """Start a browser that contacts only the test's server."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (
        "headless=new", "no-sandbox", "disable-gpu", "disable-background-networking", "disable-component-update",
        "disable-sync", "no-first-run", f"user-data-dir={profile}", *more,
    ):  # fmt: skip
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))


def look(browser, width=1280, scheme="light"):
    """Set the width of the window, and the preferred color scheme."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    preferred = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", preferred)


def visit(browser, address):
    """Open an address, and return when all of it is loaded: a busy driver returns while the style is still loading."""
    browser.execute_script("window.isLeft = true")
    browser.get(address)
    until(lambda: browser.execute_script("return !window.isLeft && document.readyState === 'complete'"))


def until(holds, why=lambda: None):
    """Wait until `holds` returns a true value, and return the value."""
    give_up_s = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        assert time.monotonic() < give_up_s, why()
        time.sleep(0.05)
    return found

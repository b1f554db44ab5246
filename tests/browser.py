"""A headless Chromium for tests of what people see: pages, their messages, what they fetch."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from selenium.common.exceptions import WebDriverException
from selenium.webdriver import Chrome
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from tests.waiting import LIMIT

ATTEMPTS = 5
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)
LOCAL = ("file:", "data:", "blob:", "about:", "chrome:", "chrome-extension:")


@contextmanager
def browser(width: int = 1280, height: int = 900, *, dark: bool = False) -> Iterator[Chrome]:
    """A fresh Chromium whose page is ``width`` × ``height``; ``dark`` is what its user prefers.

    Raises ``RuntimeError`` if Chromium or its driver is not installed: none is downloaded.
    """
    paths = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    missing = [name for name, path in paths.items() if path is None]
    if missing:
        raise RuntimeError(f"not on PATH: {', '.join(missing)}; `make system` installs them")
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profiles:
        flags = (*FLAGS, f"--window-size={width},{height}")
        driver = _started(str(paths["chromium"]), str(paths["chromedriver"]), flags, profiles)
        try:
            driver.set_page_load_timeout(LIMIT)
            driver.set_script_timeout(LIMIT)
            resize(driver, width, height)
            emulate(driver, dark=dark)
            yield driver
        finally:
            driver.quit()


def _started(chromium: str, chromedriver: str, flags: Sequence[str], profiles: str) -> Chrome:
    """Both get less than a minute to start, in their own code; on a busy machine they try again."""
    for attempt in range(ATTEMPTS):
        options = Options()
        options.binary_location = chromium
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        for flag in (*flags, f"--user-data-dir={profiles}/{attempt}"):
            options.add_argument(flag)
        try:
            return Chrome(options, Service(executable_path=chromedriver))
        except WebDriverException as error:
            problem = error
    raise problem


def resize(driver: Chrome, width: int, height: int) -> None:
    """Give the page itself this size, to the pixel; a window's least width does not count."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def emulate(driver: Chrome, *, dark: bool = False, media: str = "") -> None:
    """Be someone who prefers dark or light pages; ``media`` may be ``print``."""
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": [scheme]})


def console_errors(driver: Chrome) -> list[str]:
    """What the console complained of since the last call."""
    entries = driver.get_log("browser")  # type: ignore[no-untyped-call]
    return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]


def requests(driver: Chrome) -> list[str]:
    """The addresses fetched since the last call, other than files and what pages carry."""
    entries = driver.get_log("performance")  # type: ignore[no-untyped-call]
    messages = [json.loads(entry["message"])["message"] for entry in entries]
    sent = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return [s["request"]["url"] for s in sent if not s["request"]["url"].startswith(LOCAL)]

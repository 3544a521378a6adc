"""Drives Debian's Chromium for the tests of the page: what a user sees and presses, and faults of the page.

One browser serves all tests. Its microphone plays a clip again and again, from its start whenever it is opened.
"""

import re
import shutil
import time
import wave
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import orjson
import soundfile
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.server.running import SPEECH

T = TypeVar("T")

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
CLIP = SPEECH / "espeak" / "en_02.flac"
SAID = "One simple engine across my black orange."
SWITCHES = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--lang=en-US",
    "--use-fake-device-for-media-stream", "--autoplay-policy=no-user-gesture-required",
)  # fmt: skip
MICROPHONE = {"permissions": ["audioCapture", "clipboardReadWrite", "clipboardSanitizedWrite"]}
WIDE, NARROW = (1180, 780), (360, 740)


def with_pause(clip: Path, path: Path, *, pause_s: float = 2.0) -> Path:
    """Return *clip* with a pause after it, as Chromium's microphone needs it."""
    samples, rate = soundfile.read(clip, dtype="int16")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes() + bytes(2 * round(pause_s * rate)))
    return path


@contextmanager
def chromium(folder: Path, clip: Path = CLIP) -> Iterator[Chrome]:
    assert CHROMIUM is not None
    assert DRIVER is not None
    options = ChromeOptions()
    options.binary_location = CHROMIUM
    microphone = with_pause(clip, folder / "microphone.wav")
    for switch in (
        *SWITCHES, f"--user-data-dir={folder / 'profile'}", f"--use-file-for-fake-audio-capture={microphone}",
    ):  # fmt: skip
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options=options, service=ChromeService(DRIVER))
    try:
        driver.set_script_timeout(20)
        driver.execute_cdp_cmd("Browser.grantPermissions", MICROPHONE)
        yield driver
    finally:
        driver.quit()


@dataclass
class Page:
    """A tab with a page of one server."""

    driver: Chrome
    base: str

    # --- going somewhere ---------------------------------------------------------------------------------------------

    def open(self, path: str = "", *, key: str | None = None) -> None:
        """Open the page at *path* in a browser that has stored *key* and nothing else."""
        kept = "null" if key is None else orjson.dumps(key).decode()
        before = "localStorage.clear(); sessionStorage.clear();"
        before += f"if ({kept}) localStorage.setItem('scribewire.key', {kept})"
        self.driver.get("about:blank")  # so that a change after # alone also loads the page
        script = self.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": before})
        self.driver.get(f"{self.base}/{path}")
        self.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)

    def look(
        self, *, size: tuple[int, int] = WIDE, dark: bool = False, still: bool = False, forced: bool = False
    ) -> None:
        """Set the screen and the user's preferences for the next pages."""
        width, height = size
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == NARROW},
        )
        features = {"prefers-color-scheme": "dark" if dark else "light",
                    "prefers-reduced-motion": "reduce" if still else "no-preference",
                    "forced-colors": "active" if forced else "none"}  # fmt: skip
        media = {"features": [{"name": name, "value": value} for name, value in features.items()]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)

    # --- seeing ------------------------------------------------------------------------------------------------------

    def script(self, source: str, *arguments: object) -> Any:
        return self.driver.execute_script(source, *arguments)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def element(self, selector: str, *, max_s: float = 20) -> WebElement:
        """Wait for a visible element and return the first one."""
        return self.until(
            lambda: next((one for one in self.all(selector) if one.is_displayed()), None), selector, max_s=max_s
        )

    def click(self, selector: str) -> None:
        """Click the first visible element, even if the page replaces it by a similar one in the meantime."""

        def clicked() -> bool:
            self.element(selector).click()
            return True

        self.until(clicked, selector)

    def text(self, selector: str) -> str:
        """Return the text as it is shown, with its spaces."""
        return " ".join(str(self.script("return document.querySelector(arguments[0]).innerText", selector)).split())

    def until_text(self, selector: str, pattern: str, *, max_s: float = 20) -> str:
        """Wait until the text matches, and return it."""
        return self.until(
            lambda: text if re.search(pattern, text := self.text(selector)) else None,
            f"{pattern!r} in {selector}",
            max_s=max_s,
            last=lambda: self.text(selector),
        )

    def until(
        self, seen: Callable[[], T | None], what: str, *, max_s: float = 20, last: Callable[[], object] | None = None
    ) -> T:
        """Call *seen* until its result is true, and return that."""
        until = time.monotonic() + max_s
        while not (value := _unless_gone(seen)):
            if time.monotonic() > until:
                found = "" if last is None else f"; the last was {last()!r}"
                raise AssertionError(f"no {what} within {max_s} s{found}; the console says {self.console()}")
            time.sleep(0.05)
        return value

    # --- doing -------------------------------------------------------------------------------------------------------

    def press(self, *keys: str) -> None:
        ActionChains(self.driver).send_keys(*keys).perform()

    def tab_to(self, selector: str, *, most: int = 40) -> None:
        """Press Tab until the element has the focus."""
        for _ in range(most):
            if self.script("return document.activeElement.matches(arguments[0])", selector):
                return
            self.press(Keys.TAB)
        raise AssertionError(f"{most} tabs do not lead to {selector}")

    # --- faults --------------------------------------------------------------------------------------------

    def console(self) -> list[str]:
        """Return the console's errors and warnings since the last call."""
        return [row["message"] for row in self._log("browser") if row["level"] in ("SEVERE", "WARNING")]

    def _log(self, name: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.driver.get_log(name)  # type: ignore[no-untyped-call]  # untyped in selenium
        return rows

    def hosts(self) -> set[str]:
        """Return every host that the page has contacted since the last call."""
        found = set()
        for row in self._log("performance"):
            message = orjson.loads(row["message"])["message"]
            match message["method"]:
                case "Network.requestWillBeSent":
                    address = urlsplit(message["params"]["request"]["url"])
                case "Network.webSocketCreated":
                    address = urlsplit(message["params"]["url"])
                case _:
                    continue
            if address.scheme not in ("blob", "data"):
                found.add(address.netloc)
        return found

    def nameless(self) -> list[str]:
        """Return the controls without a name for screen readers, as Chromium computes it."""
        tree = self.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        return [
            f"{role} {node.get('properties')}"
            for node in tree
            if not node["ignored"]
            and (role := node["role"]["value"]) in CONTROLS
            and not node.get("name", {}).get("value", "").strip()
        ]

    def regions(self) -> list[str]:
        """Return the names of the regions, as Chromium tells them to screen readers."""
        tree = self.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        shown = [node for node in tree if not node["ignored"] and node["role"]["value"] in ("region", "log")]
        return [str(node["name"]["value"]) for node in shown]

    def download_to(self, folder: Path) -> None:
        """Let the browser save downloads in *folder* without asking."""
        where = {"behavior": "allow", "downloadPath": str(folder)}
        self.driver.execute_cdp_cmd("Browser.setDownloadBehavior", where)

    def saved(self, path: Path) -> bytes:
        """Wait until the browser has saved the file, and return its bytes."""
        return self.until(lambda: path.read_bytes() if path.exists() else None, path.name)

    def pale(self) -> list[str]:
        """Return the visible texts with less contrast than WCAG AA requires."""
        return [str(one) for one in self.script(PALE)]

    def sideways(self) -> int:
        """Return by how many pixels the page is wider than its window."""
        return int(self.script("return document.documentElement.scrollWidth - document.documentElement.clientWidth"))


def _unless_gone(seen: Callable[[], T | None]) -> T | None:
    """Return the result of *seen*, or None if the page removes an element in the meantime."""
    try:
        return seen()
    except StaleElementReferenceException:
        return None


CONTROLS = frozenset(
    {"button", "link", "textbox", "searchbox", "radio", "checkbox", "spinbutton", "combobox", "meter",
     "progressbar", "slider", "region", "dialog", "image", "img", "video"}
)  # fmt: skip

PALE = (Path(__file__).parent / "pale.js").read_text()

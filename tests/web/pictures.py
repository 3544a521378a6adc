"""Takes pictures of every view: `.venv/bin/python -m tests.web.pictures` writes them to references/.

People look at them. They are not compared, because fonts differ between machines; a test only takes them.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.server.running import run_server
from tests.web.browsing import CLIP, NARROW, SAID, WIDE, Page, chromium

REFERENCES = Path(__file__).parent / "references"
MAX_BYTES = 150_000


def speak(page: Page, key: str) -> Iterator[str]:
    page.open("#speak", key=key)
    yield "speak-before"
    page.click("#speak-toggle")
    page.until_text("#speak-text", SAID, max_s=40)
    page.until_text("#speak-text", f"{SAID}.* One", max_s=40)
    page.click("#speak-share")
    link = str(page.element("#speak-link").get_attribute("value"))
    yield "speak"
    page.click("#speak-toggle")
    page.until_text("#speak-standing", "Done")
    page.open(link.removeprefix(page.base + "/"))
    page.until_text("#standing", "over")
    yield "captions"


def read_file(page: Page, key: str) -> Iterator[str]:
    page.open("#files", key=key)
    page.all("#file")[0].send_keys(str(CLIP))
    page.until_text("#job-view .transcript", SAID, max_s=40)
    page.all(".word")[3].click()
    page.until(lambda: page.all(".word.lit"), "a lit word")
    page.script("document.querySelector('video').pause()")
    yield "transcript"
    page.script("location.hash = '#files'")
    page.element("#jobs li")
    yield "files"


def price(page: Page, key: str) -> Iterator[str]:
    page.open("#estimate", key=key)
    page.element("#prompt").send_keys("Summarise this meeting for people who were not there.")
    page.script("document.querySelector('#turns').value = 5")
    page.click("#estimate-form button")
    page.element("#estimate-rows li")
    page.script("document.querySelector('#estimate-form .fields').scrollIntoView()")
    yield "estimate"


def stages(page: Page, key: str) -> Iterator[str]:
    page.open("#account", key=key)
    page.element("#usage dd")
    yield "account"
    page.open("#speak")
    page.click("#speak-toggle")
    page.element("#key-dialog")
    yield "key"
    page.open("docs#createLive")
    page.element("article")
    yield "docs"


SCENES: tuple[Callable[[Page, str], Iterator[str]], ...] = (speak, read_file, price, stages)
SCREENS = {"light": (WIDE, False), "dark": (WIDE, True), "narrow": (NARROW, False)}


def take(page: Page, key: str, folder: Path, *, screens: tuple[str, ...] = tuple(SCREENS)) -> list[Path]:
    """Save every scene on every screen as folder/SCENE-SCREEN.png."""
    taken = []
    for screen in screens:
        size, dark = SCREENS[screen]
        page.look(size=size, dark=dark, still=True)
        for scene in SCENES:
            for name in scene(page, key):
                path = folder / f"{name}-{screen}.png"
                page.driver.save_screenshot(str(path))
                taken.append(path)
    return taken


def main() -> int:
    REFERENCES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, run_server(Path(folder) / "data") as server:
        (Path(folder) / "browser").mkdir()
        key = (server.data_dir / "operator-key").read_text().strip()
        with chromium(Path(folder) / "browser") as driver:
            for path in take(Page(driver, server.base), key, REFERENCES):
                print(path.name, path.stat().st_size)  # noqa: T201  the output of the program
    return 0


if __name__ == "__main__":
    sys.exit(main())

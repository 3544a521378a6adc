"""The picture of the README is of today's page. To renew it: PICTURE=new pytest tests/web/test_web_picture.py"""

import os
import struct

from tests.server.running import ROOT
from tests.web.browsing import Page

PICTURE = ROOT / "server" / "page.png"
SIZE = (1280, 720)
FINAL, PARTIAL = "#speak-text .final", "#speak-text .partial"


def size_of(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def test_the_picture_shows_final_words_and_those_that_may_still_change(page: Page, key):
    page.look(size=SIZE, still=True)
    page.open("#speak", key=key)
    page.click("#speak-toggle")

    def taken() -> bytes | None:
        shown = "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent).join(' ').length"
        if page.script(shown, FINAL) < 40 or page.script(shown, PARTIAL) < 10:
            return None
        return page.driver.get_screenshot_as_png()

    made = page.until(taken, "final words and others", last=lambda: page.text("#speak-text"))
    assert size_of(made) == SIZE
    if os.environ.get("PICTURE") == "new":
        PICTURE.write_bytes(made)
    assert size_of(PICTURE.read_bytes()) == SIZE, "the picture in the README is older than this page"

"""Tests of translations on the page: side by side, one of them, remembered, from right to left, and as an overlay."""

from collections.abc import Iterator

import pytest

from tests.server.serving import AppServer, serve
from tests.server.stand_in import stand_in
from tests.web.browsing import Page

VOICE = "This is the sandbox speaking."


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[AppServer]:
    with stand_in() as translator, serve(tmp_path_factory.mktemp("web"), **translator.variables) as started:
        yield started


@pytest.fixture(scope="module")
def key(server) -> str:
    return server.key("enterprise")


@pytest.fixture(scope="module")
def link(server, key) -> str:
    """Return the path of the captions of a session that is over, in English, German and Arabic."""
    with server.client(key) as client:
        job = client.post("/v1/live", json={"translate_to": ["de", "ar"]}).json()["job_id"]
        client.post(f"/v1/jobs/{job}/audio?final=true", content=bytes(5 * 32_000)).raise_for_status()
        client.get(f"/v1/jobs/{job}", params={"wait": 20})
        token = client.post("/v1/tokens", json={"job_id": job}).json()["token"]
    return f"live/{job}%s#token={token}"


def shown(page: Page) -> list[str]:
    """Return the text of every box of captions that can be seen."""
    return [box.text.strip() for box in page.all(".live") if box.is_displayed()]


def test_original_and_translation_stand_side_by_side_until_the_reader_chooses(page, link):
    page.open(link % "")
    page.until(lambda: any("SANDBOX" in text for text in shown(page)), "a translation")
    assert len(shown(page)) == 2
    page.script(
        "const select = document.querySelector('header select'); select.value = 'ar';"
        "select.dispatchEvent(new Event('change'));"
    )
    [arabic] = shown(page)
    assert arabic.startswith(VOICE.upper())
    assert page.script("return document.querySelector('.pair p[lang=ar]').dir") == "auto"
    page.driver.refresh()
    page.until(lambda: shown(page) == [arabic], "the choice of the last time")


def test_the_address_chooses_too(page, link):
    page.open(link % "?lang=original,de")
    page.until(lambda: any("SANDBOX" in text for text in shown(page)), "the translation")
    assert len(shown(page)) == 2
    page.open(link % "?lang=original")
    page.until(lambda: any("sandbox" in text for text in shown(page)), "the original")
    page.until(lambda: page.all("header select option"), "the languages")
    assert len(shown(page)) == 1


def test_an_overlay_shows_the_language_of_its_address_alone(page, link):
    page.open(link % "?overlay=1&lang=de&hide=0")
    page.until(lambda: any("SANDBOX" in text for text in shown(page)), "the translation")
    [german] = shown(page)
    assert "sandbox" not in german


def test_translations_are_ordered_where_somebody_makes_them(page, key):
    page.open("#files", key=key)
    page.until(lambda: page.all("#files-order .translate:not([hidden])"), "the field for languages")

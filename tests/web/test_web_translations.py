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


HEARD = """return (async (events) => {
  const { LiveText } = await import("/web/words.js");
  const box = document.createElement("div");
  const place = document.createElement("div");
  place.append(box);
  document.body.append(place);
  const text = new LiveText(box);
  return events.map((event) => {
    text.hear(event);
    const boxes = place.querySelectorAll(".live");
    return [...boxes].map((one) => [one.hidden, [...one.querySelectorAll("p")].map((p) => p.textContent)]);
  });
})(arguments[0])"""


def said(index: int, text: str, language: str, speaker: str = "S1") -> dict[str, object]:
    times = {"start": float(index), "end": index + 0.8}
    return {"type": "word", "index": index, "word": text, "language": language, "speaker": speaker, **times}


def translated(first: int, text: str, target: str = "en") -> dict[str, object]:
    return {
        "type": "translation", "target": target, "first": first, "last": first, "text": text,
        "start": float(first), "end": first + 0.8,
    }  # fmt: skip


def heard(page: Page, path: str, *events: dict[str, object]) -> list[list[tuple[bool, list[str]]]]:
    """Return the boxes of translations after each event: whether each is hidden, and its paragraphs."""
    page.open(path)
    shown: list[list[tuple[bool, list[str]]]] = page.script(HEARD, list(events))
    return shown


def test_what_was_spoken_in_a_language_before_its_first_translation_is_shown_in_it_too(page):
    events = said(0, "Good", "en"), said(1, "morning.", "en"), said(2, "Hola.", "es"), translated(2, "Hello.")
    assert heard(page, "#speak", *events)[-1] == [[False, ["Good morning.", "Hello."]]]


def test_the_language_of_the_address_is_shown_alone_from_the_first_word_on(page):
    events = said(0, "Hola.", "es"), said(1, "Good", "en"), translated(0, "Hello.")
    shown = heard(page, "live/job_none?lang=en", *events)
    assert shown == [[[False, []]], [[False, ["Good"]]], [[False, ["Good", "Hello."]]]]


def test_each_speaker_and_language_has_a_paragraph_in_the_translation_too(page):
    events = (
        said(0, "Hola.", "es"), translated(0, "Hello."), said(1, "Salut.", "fr"), translated(1, "Hi."),
        said(2, "Bon.", "fr", "S2"), translated(2, "Well."), said(3, "Oui.", "fr", "S2"), translated(3, "Yes."),
    )  # fmt: skip
    assert heard(page, "#speak", *events)[-1] == [[False, ["Hello.", "Hi.", "Well. Yes."]]]


def test_the_translation_of_a_corrected_sentence_takes_the_place_of_the_earlier_one(page):
    events = (
        said(0, "Hola.", "es"), said(1, "Ana.", "es"), translated(0, "Hullo."), translated(1, "Anna."),
        translated(1, "Ana."),
    )  # fmt: skip
    assert [boxes[0][1] for boxes in heard(page, "#speak", *events)[3:]] == [["Hullo. Anna."], ["Hullo. Ana."]]

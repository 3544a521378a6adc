"""Tests of what the page says about the model, its languages, and how the operator gets more of them."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.server.running import Server, run_server
from tests.server.serving import serve
from tests.web.browsing import Page

VIEWS = ("speak", "files")


@pytest.fixture(scope="module")
def bundled_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield a server with the bundled model of English alone."""
    with run_server(tmp_path_factory.mktemp("web"), ENGINE="auto", WHISPER_MODEL="tiny.en") as started:
        yield started


def placeholder(page: Page, view: str) -> str:
    return str(page.script("return document.querySelector(arguments[0]).placeholder", f"#{view}-order [name=language]"))


@pytest.mark.parametrize("view", VIEWS)
def test_a_model_of_several_languages_is_shown_with_them(page, view):
    page.open(f"#{view}")
    page.until_text(f"#{view}-view .hears", "^Models: tiny-whisper for English, French, German, and Spanish.$")
    assert placeholder(page, view) == "detected"


@pytest.mark.parametrize("view", VIEWS)
def test_the_bundled_model_is_shown_with_the_command_for_a_bigger_one(bundled_server, browser, view):
    page = Page(browser, bundled_server.base)
    page.open(f"#{view}")
    line = f"#{view}-view .hears"
    page.until_text(line, "^Models: tiny.en for English. scribewire models pull base on the server brings")
    assert placeholder(page, view) == "English"


def test_a_server_that_cannot_tell_speakers_apart_says_what_helps(browser, tmp_path, monkeypatch):
    with serve(tmp_path) as server:
        page = Page(browser, server.base)
        page.open("#speak")
        page.until_text("#speak-view .hears", "^Models:")
        assert "speakers" not in page.text("#speak-view .hears")
        offers = server.service.parts.offers
        monkeypatch.setitem(offers, "production", replace(offers["production"], speakers=False))  # type: ignore[arg-type]  # other nodes may change it too
        page.open("#speak")
        page.until_text("#speak-view .hears", "To tell speakers apart, run scripts/setup speakers on the server.")
        browser.get("about:blank")


def test_a_language_that_the_model_does_not_know_is_refused_in_its_words(bundled_server, browser):
    page = Page(browser, bundled_server.base)
    page.open("#files", key=bundled_server.new_key())
    page.click("#files-view summary")
    page.element("#files-order [name=language]").send_keys("es")
    page.element("#url").send_keys("http://127.0.0.1:1/talk.mp3")
    page.click("#url-form button")
    page.until_text("#files-problem", r"the model tiny.en knows English \(en\) only, not 'es'")

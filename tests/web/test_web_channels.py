"""Tests of channels on the page: made, copied and deleted with the account, and spoken into."""

import re

import pytest
import soundfile
from selenium.webdriver.common.keys import Keys

from tests.server.running import SPEECH, Server
from tests.web.browsing import SAID, Page


@pytest.fixture(autouse=True)
def none(server: Server, key: str) -> None:
    """Delete the channels that another test has made."""
    with server.client(key) as client:
        for channel in client.get("/v1/channels").json()["data"]:
            client.delete(f"/v1/channels/{channel['channel_id']}")


def copy(page: Page, said: str) -> str:
    """Press the button that copies *said*, and return what was copied."""
    page.script("navigator.clipboard.writeText = async (text) => { window.copied = text }; window.copied = null")
    page.click(f"button[aria-label='{said}']" if ":" in said else said)
    return str(page.until(lambda: page.script("return window.copied"), "a copy"))


def test_a_channel_is_made_copied_and_deleted_with_the_keyboard(page, key):
    page.open("#account", key=key)
    page.element("#usage dd")
    page.tab_to("#channel-name")
    page.press(*"main stage", Keys.ENTER)
    page.until_text("#channels", "main stage")
    link = copy(page, "Copy link: main stage")
    assert re.fullmatch(re.escape(page.base) + r"/live/chn_\w{26}#token=ct_[\w-]+", link)
    assert copy(page, "Copy overlay link: main stage") == link.replace("#", "?overlay=1#")
    assert page.nameless() == []
    page.tab_to("button[aria-label='Delete: main stage']")
    page.press(Keys.ENTER)
    page.driver.switch_to.alert.accept()
    page.until(lambda: page.all("#channels li") == [], "no channel")


def make_stage(server: Server, key: str) -> str:
    """Make the channel "stage", and return its link."""
    with server.client(key) as client:
        return str(client.post("/v1/channels", json={"name": "stage"}).json()["page_url"])


def choose_stage(page: Page) -> None:
    """Unfold the choices and choose the channel "stage" as soon as it is offered."""
    page.click("#speak-view summary")
    page.element("#speak-channel option[value=stage]")
    page.element("#speak-channel").send_keys("stage")


def test_what_is_spoken_into_a_channel_is_read_at_its_link(page, server, key):
    link = make_stage(server, key)
    page.open("#speak", key=key)
    choose_stage(page)
    page.click("#speak-toggle")
    page.until_text("#speak-standing", "Listening")
    page.click("#speak-share")
    assert page.element("#speak-link").get_attribute("value") == link
    assert "channel stage" in page.text("#speak-link-label")
    page.click("#speak-shared summary")
    assert copy(page, "#speak-overlay") == link.replace("#", "?overlay=1#")
    driver, speaker = page.driver, page.driver.current_window_handle
    driver.switch_to.new_window("tab")
    try:
        driver.get(link)
        page.until_text("#captions", re.escape(SAID), max_s=40)
        page.until_text("#standing", "Live")
    finally:
        driver.close()
        driver.switch_to.window(speaker)
    page.click("#speak-toggle")
    page.until_text("#speak-standing", "Done", max_s=40)


def test_a_channel_stays_chosen_while_the_list_is_loaded_again(page, server, key):
    link = make_stage(server, key)
    page.open("#speak", key=key)
    choose_stage(page)
    page.script("""
      const fetched = window.fetch;
      window.fetch = (url, ...more) =>
        String(url).endsWith("/v1/channels") ? new Promise(() => {}) : fetched(url, ...more);
    """)
    page.click("#speak-view summary")  # which asks for the list again
    page.click("#speak-toggle")
    page.until_text("#speak-standing", "Listening")
    page.click("#speak-share")
    assert page.element("#speak-link").get_attribute("value") == link
    page.click("#speak-toggle")
    page.until_text("#speak-standing", "Done", max_s=40)


def say(server: Server, key: str, text_of: str) -> None:
    """Make a session of the channel "stage" that says the clip *text_of*, and end it."""
    samples, rate = soundfile.read(SPEECH / "espeak" / text_of, dtype="int16")
    with server.client(key) as client:
        job = client.post("/v1/live", json={"sample_rate": rate, "channel": "stage"}).json()["job_id"]
        client.post(f"/v1/jobs/{job}/audio", params={"final": "true"}, content=samples.tobytes(), timeout=60)


def test_between_sessions_the_audience_reads_that_it_pauses_and_the_text_stays_above_a_line(page, server, key):
    link = make_stage(server, key)
    page.driver.get(link)
    page.until_text("#standing", "Waiting")
    say(server, key, "en_02.flac")
    page.until_text("#captions", re.escape(SAID), max_s=40)
    page.until_text("#standing", "Paused. The next session will appear here.")
    say(server, key, "en_00.flac")
    page.until_text("#captions", f"{re.escape(SAID)}.*We heard a quiet sugar", max_s=40)
    tags = page.script("return [...document.querySelector('#captions').children].map((one) => one.tagName)")
    assert tags.count("HR") == 1
    say(server, key, "en_03.flac")
    page.until_text("#captions", "We heard a quiet sugar.*Eleven yellow", max_s=40)
    assert SAID not in page.text("#captions"), "the page does not grow for ever"
    page.look(size=(360, 420))
    page.script("document.querySelector('#captions').scrollTop = 0")
    page.click("#larger")
    page.click("#larger")
    page.click("#larger")
    page.script("document.querySelector('#captions').scrollTop = 0")
    page.click("#newest")
    page.until(lambda: not page.all("#newest")[0].is_displayed(), "the end of the text")
    size = page.script("return document.documentElement.style.getPropertyValue('--size')")
    page.driver.refresh()
    page.element("#smaller")
    assert page.script("return document.documentElement.style.getPropertyValue('--size')") == size != "1"

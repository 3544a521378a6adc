"""Tests of correcting on the page: by keyboard, by several people, by a link, on air, and finding what was said."""

import re
from collections.abc import Iterator

import httpx
import numpy as np
import pytest
import soundfile
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.server.running import Server
from tests.web.browsing import CLIP, NARROW, SAID, Page, with_pause

WORDS = len(SAID.split())


@pytest.fixture
def job(server: Server, key: str) -> Iterator[str]:
    """Yield a job that says SAID, and delete it."""
    with server.client(key) as client:
        form = {"output_formats": "srt,json", "word_timestamps": "true"}
        files = {"file": ("talk.flac", CLIP.read_bytes())}
        made = str(client.post("/v1/transcribe", files=files, data=form, timeout=120).json()["job_id"])
        yield made
        client.delete(f"/v1/jobs/{made}")


def srt(server: Server, key: str, job: str) -> str:
    with server.client(key) as client:
        link = client.get(f"/v1/jobs/{job}").json()["formats"]["srt"]
        return " ".join(httpx.get(link).raise_for_status().text.split())


def correct(server: Server, key: str, job: str, **change: object) -> None:
    with server.client(key) as client:
        client.post(f"/v1/jobs/{job}/corrections", json={"changes": [change]}).raise_for_status()


def open_editor(page: Page, key: str, job: str) -> None:
    page.open(f"#job/{job}", key=key)
    page.until_text("#job-transcript", re.escape(SAID), max_s=40)
    page.tab_to("#job-correct")
    page.press(Keys.ENTER)
    page.until(lambda: page.script("return document.activeElement.matches('#job-editor .word')"), "a word to correct")


def saved(page: Page) -> None:
    page.until_text("#job-editor [role=status]", "Saved")


def test_a_word_is_corrected_and_taken_back_by_keyboard_alone(page, server, key, job):
    open_editor(page, key, job)
    page.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ENTER, *"Ljubljana", Keys.ENTER)
    saved(page)
    corrected = SAID.replace("engine", "Ljubljana")
    page.until_text("#job-editor .transcript", re.escape(corrected))
    assert corrected in srt(server, key, job)
    assert page.nameless() == []
    assert page.pale() == []
    page.click("#job-editor [role=group] span button")
    assert page.script("return document.querySelector('#files-order [name=keywords]').value") == "Ljubljana"
    page.script("document.querySelectorAll('#job-editor .word')[2].focus()")
    ActionChains(page.driver).key_down(Keys.CONTROL).send_keys("z").key_up(Keys.CONTROL).perform()
    saved(page)
    page.until_text("#job-editor .transcript", re.escape(SAID))
    assert SAID in srt(server, key, job)
    page.driver.refresh()  # what can be done again survives
    page.until_text("#job-transcript", re.escape(SAID), max_s=40)
    page.click("#job-correct")
    page.element("#job-editor .word")
    page.script("document.querySelectorAll('#job-editor [role=group] button')[1].click()")
    page.until_text("#job-editor .transcript", re.escape(corrected))
    page.click("#job-correct")
    page.until_text("#job-transcript", re.escape(corrected))
    page.until(lambda: page.script("return document.activeElement.id") == "job-correct", "the focus where it was")


def test_words_are_found_and_replaced_removed_and_given_to_a_named_speaker(page, server, key, job):
    open_editor(page, key, job)
    page.element("#job-editor [type=search]").send_keys("black ORANGE")
    page.element("#job-editor [aria-label='Replace with']").send_keys("red apple")
    page.script("[...document.querySelectorAll('#job-editor form button')].at(-1).click()")
    page.until_text("#job-editor .transcript", "my red apple")
    page.script("document.querySelector('#job-editor .word').focus()")
    page.press(Keys.DELETE)
    page.until_text("#job-editor .transcript", "^⌫ simple")
    saved(page)
    page.press("1")
    page.until_text("#job-editor", "Name of S1")
    page.element("#job-editor [list]").send_keys("Anna", Keys.ENTER)
    saved(page)
    page.until_text("#job-editor .transcript", "Anna")
    assert "Anna: simple engine across my red apple" in srt(server, key, job)


def test_without_a_mouse_lines_finding_speed_and_playing_have_keys(page, key, job):
    def ctrl(pressed: str) -> None:
        ActionChains(page.driver).key_down(Keys.CONTROL).send_keys(pressed).key_up(Keys.CONTROL).perform()

    def focused() -> str:
        return str(page.script("return document.activeElement.textContent || document.activeElement.ariaLabel"))

    page.look(size=NARROW)  # in two lines
    open_editor(page, key, job)
    page.press(Keys.ARROW_DOWN)
    below = focused()
    assert below in SAID.split()[2:]
    page.press(Keys.ARROW_UP)
    assert focused() == SAID.split()[0]
    ctrl("f")
    assert focused() == "Find"
    page.press(*"a", Keys.ENTER)  # across, black, and orange
    page.until_text("#job-editor [role=status]", "^1 of 3 found")
    page.press(Keys.F3)
    assert focused() == "black"
    page.press(Keys.ESCAPE, Keys.TAB)
    assert page.script("return !document.activeElement.closest('.transcript')")
    page.press(Keys.ESCAPE)
    assert focused() == "black"
    page.press(Keys.ENTER)
    ctrl(" ")
    page.until_text("#job-editor [role=status]", "no audio here yet")
    page.press(Keys.ESCAPE)
    ctrl(Keys.ARROW_DOWN)
    page.until_text("#job-editor [role=status]", "Speed 0.75")


def test_a_correction_draws_no_other_paragraph_anew(page, server, key, tmp_path):
    samples, rate = soundfile.read(str(with_pause(CLIP, tmp_path / "once.wav", pause_s=4)), dtype="int16")
    soundfile.write(tmp_path / "twice.flac", np.tile(samples, 2), rate)
    with server.client(key) as client:
        files = {"file": ("twice.flac", (tmp_path / "twice.flac").read_bytes())}
        made = client.post("/v1/transcribe", files=files, timeout=120).json()["job_id"]
    open_editor(page, key, made)
    page.script("for (const one of document.querySelectorAll('#job-editor .transcript p')) one.same = true")
    page.press(*"Three", Keys.ENTER)
    saved(page)
    page.until_text("#job-editor .transcript", "^Three simple")
    drawn = "return [...document.querySelectorAll('#job-editor .transcript p')].map((one) => Boolean(one.same))"
    assert page.script(drawn) == [False, True]
    with server.client(key) as client:
        client.delete(f"/v1/jobs/{made}").raise_for_status()


def test_the_mark_decides_which_words_are_doubtful(page, key, job):
    open_editor(page, key, job)
    set_mark = "const mark = document.querySelector('#job-editor [type=range]'); mark.value = arguments[0];"
    set_mark += "mark.dispatchEvent(new Event('input'))"
    page.script(set_mark, 1)
    page.until(lambda: len(page.all("#job-editor .doubtful")) >= WORDS - 1, "doubtful words")
    page.press(Keys.TAB, Keys.TAB)
    assert page.script("return document.activeElement.textContent") == SAID.split()[2]
    page.script(set_mark, 0)
    assert not page.all("#job-editor .doubtful")


def test_who_comes_second_is_told_and_loses_nothing(page, server, key, job):
    open_editor(page, key, job)
    correct(server, key, job, first=0, last=0, text="Two")
    page.press(Keys.ARROW_RIGHT, Keys.ENTER, *"plain", Keys.ENTER)
    page.until_text("#job-editor .transcript", "Two plain engine")  # different words: both are kept
    saved(page)
    correct(server, key, job, first=2, last=2, text="motor")
    page.press(Keys.ARROW_RIGHT, Keys.ENTER, *"machine", Keys.ENTER)
    page.until_text("#job-editor [role=status]", "Somebody else .* has changed the same to “motor” meanwhile")
    assert page.script("return document.activeElement.value") == "machine"
    page.press(Keys.ENTER)
    saved(page)
    page.until_text("#job-editor .transcript", "Two plain machine across")
    assert all("412 (Precondition Failed)" in row for row in page.console()), "the browser logs these refusals"


def test_a_change_that_the_server_did_not_get_survives_a_reload(page, server, key, job):
    open_editor(page, key, job)
    page.driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": ["*/corrections*"]})
    try:
        page.press(Keys.ENTER, *"Five", Keys.ENTER)
        page.until_text("#job-editor [role=status]", "Not saved yet")
        page.driver.refresh()
        page.element("#job-editor .word", max_s=40)  # the editor opens by itself
        page.until_text("#job-editor [role=status]", "Not saved yet")
    finally:
        page.driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": []})
    saved(page)
    assert SAID.replace("One", "Five") in srt(server, key, job)
    assert all("ERR_BLOCKED_BY_CLIENT" in row for row in page.console()), "the browser logs these failures"


def test_whoever_has_an_edit_link_can_correct_that_job_and_readers_cannot(page, server, key, job):
    page.open(f"#job/{job}", key=key)
    page.click("#job-invite")
    link = str(page.element("#job-invited-link").get_attribute("value"))
    with server.client(key) as client:
        reader = client.post("/v1/tokens", json={"job_id": job, "scope": "events"}).json()["token"]
    page.open(link.removeprefix(f"{server.base}/"))
    page.until_text("#editor .transcript", re.escape(SAID))
    page.click("#editor .word")
    page.press(*"Three", Keys.ENTER)
    page.until_text("#editor [role=status]", "Saved")
    assert SAID.replace("One", "Three") in srt(server, key, job)
    assert page.nameless() == []
    page.open(f"edit/{job}#token={reader}")
    page.click("#editor .word")
    page.press(*"Four", Keys.ENTER)
    page.until_text("#editor .problem", "events")
    page.until_text("#editor .transcript", "^Three")
    assert all("403 (Forbidden)" in row for row in page.console()), "the browser logs the refusal"


def test_the_audience_sees_a_live_correction_in_its_place(page, server, key):
    samples, rate = soundfile.read(CLIP, dtype="int16")
    with server.client(key) as client:
        live = client.post("/v1/live", json={"sample_rate": rate}).json()["job_id"]
        client.post(f"/v1/jobs/{live}/audio", content=samples.tobytes() + bytes(4 * rate))
        token = client.post("/v1/tokens", json={"job_id": live}).json()["token"]
    page.open(f"live/{live}#token={token}")
    page.until(lambda: len(page.all("#captions .final")) > 2, "three final words", max_s=40)
    correct(server, key, live, first=1, last=2, text="plain motor car")
    page.until_text("#captions", "^One plain motor car")
    assert page.all("#captions .final.corrected")
    with server.client(key) as client:
        client.post(f"/v1/jobs/{live}/finish")


def test_the_operator_corrects_a_final_word_on_air(page, key):
    page.open("#speak", key=key)
    page.click("#speak-toggle")
    page.until_text("#speak-text", re.escape(SAID), max_s=40)
    page.script("document.querySelector('#speak-text').focus()")
    page.press(Keys.ARROW_LEFT)
    page.all("#speak-text .final")[2].click()
    page.press(*"Ljubljana", Keys.ENTER)
    page.until_text("#speak-text", "^One simple Ljubljana across")
    page.click("#speak-terms button")
    assert page.script("return document.querySelector('#speak-order [name=keywords]').value") == "Ljubljana"
    page.click("#speak-toggle")
    page.until_text("#speak-standing", "Done", max_s=40)
    page.click("#speak-transcripts a")
    page.until_text("#job-transcript", "One simple Ljubljana across", max_s=40)


def test_what_was_said_is_found_in_the_archive_and_opens_at_that_time(page, server, key, job):
    correct(server, key, job, first=6, last=6, text="zebra")
    page.open("#files", key=key)
    page.element("#jobs-search input").send_keys('"black ZEBRA"')
    page.until_text("#jobs", r"talk.flac.*0:0\d .*across my black zebra")
    assert page.nameless() == []
    page.click("#jobs .matches a")
    page.until_text("#job-transcript", "zebra", max_s=40)
    page.until(lambda: page.script("return document.activeElement.textContent") == "black", "the first word of it")

"""Tests of speaking into the page: a microphone that the browser takes for a real one, and words of the model."""

import hashlib
import re
from typing import Any

import httpx
from selenium.webdriver.common.keys import Keys

from pipeline.recognition.engines.scripted import SCRIPT
from server.live.parts import LiveRules
from tests.processes import free_port
from tests.server.running import run_server
from tests.server.serving import serve
from tests.waiting import until
from tests.web.browsing import MICROPHONE, SAID, Page
from tests.web.cable import cable

FINAL = "#speak-text .final"
QR_TEXT = (
    "http://192.168.178.20:8000/live/job_01JD4W2M8Q7Z5K3N9V6B1XTRGH#token="
    + "st_Q2hhbm5lbCB0b2tlbnMgYXJlIHNlY3JldA-" * 3
)
QR_DIGEST = "31f40dda63f9694dd8862ebda6619c57e157963e11f178ed829921cfeb2d4158"


def final_words(page: Page) -> list[str]:
    """Return the words that are shown as final."""
    text = page.script("return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent).join('')", FINAL)
    # paragraphs begin without a space
    return re.sub(r"(?<=[.?!])(?=[A-Z])", " ", str(text)).split()


def start(page: Page) -> None:
    page.click("#speak-toggle")
    page.until_text("#speak-standing", "Listening")


def test_what_is_said_stands_there_as_final_words_with_its_lag(page, key):
    page.open("#speak", key=key)
    page.script("""
      window.partials = 0;
      new MutationObserver(() => { partials += document.querySelector("#speak-text .partial:not(:empty)") ? 1 : 0; })
        .observe(document.querySelector("#speak-text"), { childList: true, subtree: true, characterData: true });
    """)
    start(page)
    page.until(lambda: " ".join(final_words(page)).startswith(SAID), "true words", last=lambda: final_words(page))
    assert re.fullmatch(r"\d+\.\d s", page.text("#speak-lag"))
    assert page.script("return partials") > 0
    page.until_text("#speak-log", re.escape(SAID))  # what screen readers say
    page.click("#speak-toggle")
    page.until_text("#speak-standing", "Done")
    page.click("#speak-transcripts a")
    page.until_text("#job-view .transcript", re.escape(SAID))
    assert [link.text for link in page.all("#job-downloads a")] == ["JSON", "SRT", "VTT", "TXT", "DOCX"]


def test_after_a_reload_the_transcript_is_there_and_a_new_session_starts_at_once(page, server):
    with server.client(None) as client:
        free = client.post("/v1/keys").json()["key"]  # its plan has one session at a time
    page.open("#speak", key=free)
    start(page)
    page.until(lambda: " ".join(final_words(page)).startswith(SAID), "true words", last=lambda: final_words(page))
    page.driver.refresh()
    link = page.element("#speak-transcripts a").get_attribute("href")
    start(page)
    assert not page.all("#speak-done")[0].is_displayed()
    page.click("#speak-toggle")
    page.until_text("#speak-standing", "Done")
    page.driver.refresh()
    page.until_text("#speak-standing", "Start")
    page.driver.get(str(link))
    page.until_text("#job-view .transcript", re.escape(SAID))


def test_a_session_ends_with_its_tab(page, server, key):
    page.driver.switch_to.new_window("tab")
    try:
        page.open("#speak", key=key)
        start(page)
        page.until(lambda: final_words(page), "words")
    finally:
        page.driver.close()
        page.driver.switch_to.window(page.driver.window_handles[0])
    with server.client(key) as client:

        def newest() -> str:
            return str(client.get("/v1/jobs", params={"source": "live", "limit": 1}).json()["data"][0]["status"])

        page.until(lambda: newest() == "completed", "end of the session", last=newest)


def test_who_has_the_live_link_reads_along_and_nothing_else(page, key):
    page.open("#speak", key=key)
    start(page)
    page.click("#speak-share")
    link = page.element("#speak-link").get_attribute("value")
    driver, speaker = page.driver, page.driver.current_window_handle
    driver.switch_to.new_window("tab")
    reader = driver.current_window_handle
    try:
        driver.get(link)
        page.until_text("#captions", re.escape(SAID))
        page.until_text("#standing", "Live")
        assert page.console() == []
        driver.switch_to.window(speaker)
        page.click("#speak-toggle")
        page.until_text("#speak-standing", "Done")
        driver.switch_to.window(reader)
        page.until_text("#standing", "over")
        driver.get(link[:-4])
        page.until_text("#standing", "expired")
    finally:
        driver.switch_to.window(reader)
        driver.close()
        driver.switch_to.window(speaker)


def test_speakers_have_signs_and_names_that_stay_with_the_transcript(page, key):
    page.open("#speak", key=key)
    page.click("#speak-view summary")
    page.click("#speak-order .diarize")
    start(page)
    page.until_text("#speak-text", f"S1: {re.escape(SAID)}", max_s=40)
    page.until_text("#speak-speakers", "Name of S1")
    page.element("#speak-speakers input").send_keys("Ann")
    page.until_text("#speak-text", f"Ann: {re.escape(SAID)}.*Ann: One", max_s=40)
    sign = "return getComputedStyle(document.querySelector('#speak-text .speaker'), '::before').content"
    assert "●" in str(page.script(sign))
    assert page.nameless() == []
    assert page.pale() == []
    page.click("#speak-toggle")
    page.until_text("#speak-standing", "Done")
    page.click("#speak-transcripts a")
    page.until_text("#job-view .transcript", f"Ann .*{re.escape(SAID)}")
    assert {label.text for label in page.all("#job-view .transcript .speaker")} == {"Ann"}, "one voice is one speaker"


def test_the_keyboard_alone_leads_from_an_empty_browser_to_final_words(page):
    page.open()
    page.press(Keys.TAB, Keys.ENTER)  # past the views
    page.until(lambda: page.script("return document.activeElement.id") == "speak-title", "focus in the content")
    page.tab_to("#speak-toggle")
    page.press(Keys.ENTER)
    page.element("#key-dialog")
    page.tab_to("#key-create")
    page.press(Keys.ENTER)
    page.until_text("#speak-standing", "Listening")
    assert page.script("return localStorage.getItem('scribewire.key')").startswith("sw_live_")
    page.until(lambda: final_words(page)[:2] == SAID.split()[:2], "first words", last=lambda: final_words(page))
    page.tab_to("#speak-toggle")
    page.press(Keys.ENTER)
    page.until_text("#speak-standing", "Done")
    page.tab_to("#speak-transcripts a")
    page.press(Keys.ENTER)
    page.until_text("#job-view .transcript", "One simple")


def test_who_dismisses_the_key_is_not_told_of_an_error(page):
    page.open("#speak")
    page.click("#speak-toggle")
    page.click("#key-close")
    assert page.all("#speak-problem")[0].is_displayed() is False
    page.click("#speak-toggle")
    page.element("#key-dialog")
    page.press(Keys.ESCAPE)
    page.until_text("#speak-standing", "Start")
    assert page.all("#speak-problem")[0].is_displayed() is False


def test_without_permission_for_the_microphone_the_page_says_what_to_do(page, key):
    page.open("#speak", key=key)
    setting = {"permission": {"name": "microphone"}, "setting": "denied", "origin": page.base}
    page.driver.execute_cdp_cmd("Browser.setPermission", setting)
    try:
        page.click("#speak-toggle")
        page.until_text("#speak-problem", "may not use the microphone")
        assert page.text("#speak-standing") == "Start"
    finally:
        page.driver.execute_cdp_cmd("Browser.resetPermissions", {})
        page.driver.execute_cdp_cmd("Browser.grantPermissions", MICROPHONE)


def script_words(count: int) -> list[str]:
    """Return the first words of the scripted engine, which says one for every 0.4 s of audio."""
    return [SCRIPT[number % len(SCRIPT)] for number in range(count)]


SPY = """
window.spies = [];
window.WebSocket = class extends WebSocket {
  constructor(...to) {
    super(...to);
    this.sent = [];
    this.addEventListener("message", ({ data }) => {
      const event = JSON.parse(data);
      if (event.type === "session.started") this.from = event.received_bytes;
    });
    spies.push(this);
  }
  send(data) {
    if (typeof data !== "string") this.sent.push(...data);
    super.send(data);
  }
};
"""
"""Notes what each connection of the page sends, and from which byte of the stream on."""

REPEATED = """
const [first, last] = [spies[0], spies.at(-1)];
const again = first.sent.slice(last.from);
return { count: again.length, equal: again.every((byte, at) => byte === last.sent[at]), heard: again.some(Boolean) };
"""


def test_a_killed_server_costs_no_word(browser, tmp_path):
    """The scripted engine says words at fixed times, so audio that is lost or sent twice would show."""
    with run_server(tmp_path, ENGINE="scripted", PORT=str(free_port())) as server:
        page = Page(browser, server.base)
        page.open("#speak", key=(tmp_path / "operator-key").read_text().strip())
        page.script(SPY)
        start(page)
        page.until(lambda: len(final_words(page)) >= 4, "words before")
        server.kill()
        page.until_text("#speak-standing", "Nothing is lost")
        server.start()
        page.until_text("#speak-standing", "Listening", max_s=40)
        spoken_until = _seconds(page.text("#speak-clock"))
        page.until(lambda: len(final_words(page)) * 0.4 > spoken_until, "words after", last=lambda: final_words(page))
        page.click("#speak-toggle")
        page.until_text("#speak-standing", "Done")
        words = final_words(page)
        assert words == script_words(len(words))
        assert len(page.all("#speak-transcripts a")) == 1
        repeated = page.script(REPEATED)
        assert repeated["count"] > 8000
        assert repeated["equal"], "the page no longer had audio that the server asked for"
        assert repeated["heard"]
        browser.get("about:blank")


def test_a_session_that_the_server_ended_meanwhile_goes_on_in_a_new_one(browser, tmp_path):
    impatient = LiveRules(writerless_s=0.5, look_s=0.1)
    with serve(tmp_path, live=impatient) as server, cable(server.base) as line:
        page = Page(browser, line.base)
        page.open("#speak", key=server.key())
        start(page)
        page.until(lambda: len(final_words(page)) >= 3, "words before")
        page.click("#speak-share")
        first = page.element("#speak-link").get_attribute("value")
        line.cut()
        page.until_text("#speak-standing", "Nothing is lost")
        until(lambda: record_of(page, server.base, str(first))["status"] == "completed")
        line.mend()
        page.until_text("#speak-standing", "Listening")
        page.until(lambda: page.element("#speak-link").get_attribute("value") != first, "a link to the new job")
        before = len(final_words(page))
        page.until(lambda: len(final_words(page)) >= before + 6, "words after", last=lambda: final_words(page))
        page.click("#speak-toggle")
        page.until_text("#speak-standing", "Done")
        links = [str(link.get_attribute("href")) for link in page.all("#speak-transcripts a")]
        assert len(links) == 2
        heard_s = sum(record_of(page, server.base, link)["duration"] for link in links)
        assert abs(heard_s - _seconds(page.text("#speak-clock"))) <= 1  # the clock shows whole seconds
        browser.get("about:blank")


def record_of(page: Page, base: str, link: str) -> dict[str, Any]:
    """Return the record of the job that *link* names, asked for with the key of the page."""
    job = re.search(r"job_\w+", link)
    own = {"Authorization": f"Bearer {page.script('return localStorage.getItem(`scribewire.key`)')}"}
    record: dict[str, Any] = httpx.get(f"{base}/v1/jobs/{job[0]}", headers=own).json()
    return record


def _seconds(clock: str) -> int:
    minutes, seconds = clock.split(":")
    return 60 * int(minutes) + int(seconds)


# --- before, between and during sessions ------------------------------------------------------------------------------


def test_the_microphone_is_chosen_and_tried_before_a_session(page, key):
    page.open("#speak", key=key)
    page.click("#speak-try")
    page.until(lambda: page.script("return document.querySelector('#speak-level').value > 0"), "a level")
    listed = "return [...document.querySelector('#speak-microphone').options].slice(1).map((one) => one.text)"
    names = page.until(lambda: page.script(listed), "microphones")
    assert all(name.startswith("Fake") for name in names)
    assert page.text("#speak-clock") == "0:00"
    page.element("#speak-microphone").send_keys(names[-1])
    page.until_text("#speak-try", "^Test")
    start(page)
    page.until(lambda: final_words(page), "words")
    assert not page.all("#speak-sources")[0].is_displayed()


def test_a_paused_session_stays_open_hears_nothing_and_goes_on(page, key):
    page.open("#speak", key=key)
    start(page)
    page.until(lambda: final_words(page), "words")
    page.click("#speak-pause")
    page.until_text("#speak-standing", "Paused")
    heard, since = page.text("#speak-clock"), page.script("return performance.now()")
    assert page.text("#speak-pause") == "Go on"
    page.until(lambda: page.script("return performance.now()") > since + 1500, "more time than the clock needs")
    assert page.text("#speak-clock") == heard
    page.click("#speak-pause")
    page.until_text("#speak-standing", "Listening")
    before = len(final_words(page))
    page.until(lambda: len(final_words(page)) >= before + 5, "more words", max_s=40)
    page.click("#speak-toggle")
    page.until_text("#speak-standing", "Done")
    assert len(page.all("#speak-transcripts a")) == 1


def test_in_a_session_words_to_listen_for_can_change_and_the_rest_is_locked(page, server, key):
    page.open("#speak", key=key)
    page.click("#speak-view summary")
    start(page)
    page.until(lambda: final_words(page), "words")
    locked = page.script("return [...document.querySelectorAll('#speak-order :enabled')].map((one) => one.name)")
    assert sorted(filter(None, locked)) == ["keywords", "language", "translate_to"]
    page.element("#speak-order [name=keywords]").send_keys("orange")
    page.click("#speak-change")
    before = len(final_words(page))
    page.until(lambda: len(final_words(page)) >= before + 5, "words of the new order", max_s=40)
    page.click("#speak-toggle")
    page.until_text("#speak-standing", "Done")
    links = [str(link.get_attribute("href")) for link in page.all("#speak-transcripts a")]
    assert len(links) == 2
    heard_s = sum(record_of(page, server.base, link)["duration"] for link in links)
    assert abs(heard_s - _seconds(page.text("#speak-clock"))) <= 1
    assert page.script("return [...document.querySelectorAll('#speak-order :disabled')].length") == 0


def test_the_sound_of_a_tab_is_recorded_and_a_silent_choice_is_refused(page, key):
    """The browser's own dialog cannot be pressed here, so its answer is given in its place."""
    page.open("#speak", key=key)
    page.script("""
      navigator.mediaDevices.getDisplayMedia = async () => {
        const context = new AudioContext();
        const to = context.createMediaStreamDestination();
        const tone = new OscillatorNode(context);
        tone.connect(to);
        tone.start();
        return window.silent ? new MediaStream() : to.stream;
      };
      window.silent = true;
    """)
    page.element("#speak-sound").send_keys("sound")
    assert not page.element("#speak-microphone").is_enabled()
    page.click("#speak-toggle")
    page.until_text("#speak-problem", "shares no sound")
    page.script("window.silent = false")
    start(page)
    page.until(lambda: page.script("return document.querySelector('#speak-level').value > 0.5"), "the tone")
    page.click("#speak-toggle")
    page.until_text("#speak-standing", "Done")


def test_the_link_lasts_and_its_overlay_looks_as_chosen(page, key):
    page.open("#speak", key=key)
    start(page)
    page.click("#speak-share")
    link = str(page.element("#speak-link").get_attribute("value"))
    page.element("#speak-lasting").send_keys("a week")
    longer = page.until(
        lambda: (now := str(page.element("#speak-link").get_attribute("value"))) != link and now, "another link"
    )
    page.click("#speak-shared summary")
    assert len(page.all("#speak-shared .overlay-look [name]")) == 7
    page.script("""
      const look = document.querySelector("#speak-shared .overlay-look");
      look.querySelector("[name=lines]").value = 3;
      look.querySelector("[name=color]").value = "#ffee00";
      look.querySelector("[name=align]").value = "left";
      navigator.clipboard.writeText = async (text) => { window.copied = text };
    """)
    page.click("#speak-overlay")
    copied = page.until(lambda: page.script("return window.copied"), "a copy")
    assert copied == longer.replace("#", "?overlay=1&lines=3&color=ffee00&align=left#")
    assert page.nameless() == []
    page.click("#speak-toggle")
    page.until_text("#speak-standing", "Done")


def test_the_code_is_that_of_the_standard(page):
    """The digest is of what the Python package qrcode 8.2 draws for this text with error correction L and mask 0."""
    page.open("#speak")
    rows = page.script(
        """return (async () => {
      const { qrRows } = await import("./web/qr.js");
      return qrRows(arguments[0]).map((row) => row.map(Number).join("")).join("\\n");
    })(...arguments)""".replace("arguments[0]", "'" + QR_TEXT + "'")
    )
    assert hashlib.sha256(rows.encode()).hexdigest() == QR_DIGEST

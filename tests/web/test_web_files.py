"""Tests of files and addresses on the page, from the upload to a transcript that plays."""

import base64
import io
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import orjson
import pytest
import soundfile
from selenium.webdriver.common.keys import Keys

from tests.pipeline.sounds import Sound, tracks_in
from tests.server.receiving import host_folder
from tests.server.running import SPEECH, Server, long_recording
from tests.web.browsing import CLIP, NARROW, SAID, Page
from tests.web.cable import cable


def upload(page: Page, *files: Path) -> None:
    page.all("#file")[0].send_keys("\n".join(map(str, files)))


def test_an_upload_becomes_a_transcript_whose_words_play(page, key):
    page.open("#files", key=key)
    upload(page, CLIP)
    page.until_text("#job-view .transcript", re.escape(SAID), max_s=40)
    words = page.all(".word")
    assert [word.text for word in words] == SAID.split()
    words[3].click()
    page.until(lambda: page.all(".word.lit"), "a lit word")
    start = float(str(words[3].get_attribute("data-start")))
    now, cues, caption = page.script("""
      const video = document.querySelector("video");
      const cues = [...video.textTracks[0].cues].map((cue) => cue.text);
      return [video.currentTime, cues, video.querySelector("track").kind];
    """)
    assert now >= start
    assert " ".join(" ".join(cues).split()) == SAID
    assert caption == "captions"
    page.until_text(".caption", "One simple engine")


def test_what_becomes_of_the_text_is_chosen_in_a_folded_group(page, key):
    page.open("#files", key=key)
    page.script("""
      const place = document.querySelector("#files-order");
      for (const details of [place.parentElement, place.querySelector("details")]) details.open = true;
      const check = (name, value) => place.querySelector(`[name=${name}][value=${value}]`).click();
      check("numerals", "true");
      check("redact", "pci");
      check("redact", "email");
      place.querySelector("[name=replace]").value = "engine:motor, old\\n\\n simple: plain";
      place.querySelector("[name=search]").value = "motor";
    """)
    upload(page, CLIP)
    page.until_text("#job-view .transcript", "One plain motor, old across my black orange", max_s=40)
    address = str(page.all("#job-downloads a")[0].get_attribute("href"))
    record = httpx.get(address.partition("/outputs/")[0], headers={"Authorization": f"Bearer {key}"}).json()
    assert record["text_options"] == {
        "numerals": True,
        "redact": ["pci", "email"],
        "replace": ["engine:motor, old", "simple: plain"],
        "search": ["motor"],
    }


def test_a_warning_says_what_to_do_and_leads_to_the_choice_of_the_track(page, key, tmp_path):
    clips = [soundfile.read(SPEECH / "espeak" / name, dtype="float32")[0] for name in ("en_02.flac", "en_00.flac")]
    film = tmp_path / "film.mov"
    film.write_bytes(tracks_in("mov", *(Sound(clip, codec="pcm_s16le", rate=16_000) for clip in clips)))
    page.open("#files", key=key)
    upload(page, film)
    page.until_text("#job-view .transcript", re.escape(SAID), max_s=40)
    warned = "Somebody also speaks on track 2.*Choose the audio track, then upload the file again."
    page.until_text("#job-warnings", warned)
    page.all("#job-track")[0].click()
    page.until(lambda: page.script("return document.activeElement.name") == "track", "the choice of the track")
    page.script("document.activeElement.value = '2'")
    upload(page, film)
    page.until_text("#job-view .transcript", "We heard a quiet sugar", max_s=40)
    assert not page.all("#job-warnings li")


def test_every_download_is_what_it_says(page, key):
    page.open("#files", key=key)
    upload(page, CLIP)
    page.until_text("#job-view .transcript", re.escape(SAID), max_s=40)
    links = {link.text: str(link.get_attribute("href")) for link in page.all("#job-downloads a")}
    bodies = {name: httpx.get(link).raise_for_status().text for name, link in links.items()}
    assert bodies["TXT"].strip() == SAID
    assert bodies["SRT"].startswith("1\n00:00:0")
    assert bodies["VTT"].startswith("WEBVTT\n\n")
    assert '"schema":"service_v1"' in bodies["JSON"]


def test_arrows_lead_through_the_words(page, key):
    page.open("#files", key=key)
    upload(page, CLIP)
    page.until_text("#job-view .transcript", re.escape(SAID), max_s=40)
    page.tab_to(".word")
    page.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert page.script("return document.activeElement.textContent") == SAID.split()[2]
    page.press(Keys.ENTER)
    page.until(lambda: page.script("return document.querySelector('video').currentTime > 0.5"), "sound from there")


def test_a_running_job_shows_its_words_and_can_be_canceled(page, key, tmp_path):
    talk = tmp_path / "talk.flac"
    talk.write_bytes(long_recording(12))
    page.open("#files", key=key)
    upload(page, talk)
    page.until_text("#job-text", r"\w+ \w+", max_s=60)
    assert page.script("return document.querySelector('#job-progress').value") < 1  # words may come before its event
    page.click("#job-end")
    page.until_text("#job-problem", "canceled", max_s=60)


def test_a_live_session_of_elsewhere_can_be_finished_with_its_words(page, server, key):
    samples, rate = soundfile.read(CLIP, dtype="int16")
    with server.client(key) as client:
        job_id = client.post("/v1/live", json={"sample_rate": rate}).json()["job_id"]
        client.post(f"/v1/jobs/{job_id}/audio", content=samples.tobytes())
    page.open("#files", key=key)
    page.element("#queue button[aria-label='Finish Live session']")
    page.click("#queue a")
    page.until_text("#job-text", r"One simple", max_s=40)
    page.until_text("#job-stage", r"Live for \d minutes?")
    assert not page.all("#job-progress")[0].is_displayed()
    assert page.text("#job-end") == "Finish"
    page.click("#job-end")
    page.until_text("#job-view .transcript", re.escape(SAID), max_s=40)


def test_several_files_become_jobs_of_the_list(page, key):
    page.open("#files", key=key)
    upload(page, SPEECH / "espeak" / "en_04.flac", SPEECH / "espeak" / "en_00.flac")
    page.until_text("#jobs", r"en_00.flac.*en_04.flac")
    page.all("#jobs a")[0].click()
    page.until_text("#job-view .transcript", "We heard a quiet sugar.", max_s=40)
    page.element(".player")  # the page still has its file


def test_a_file_that_is_refused_stays_in_sight_and_stops_no_other(page, key, tmp_path):
    (tmp_path / "notes.mp3").write_text("no sound here\n" * 50)
    page.open("#files", key=key)
    upload(page, SPEECH / "espeak" / "en_01.flac", tmp_path / "notes.mp3", SPEECH / "espeak" / "en_02.flac")
    page.until_text("#jobs", r"en_02.flac.*en_01.flac", max_s=60)
    page.until_text("#uploads li", "notes.mp3.*not an audio or video file")
    assert len(page.all("#uploads li")) == 1
    page.tab_to("#uploads button")
    page.press(Keys.ENTER)
    assert page.all("#uploads li") == []
    page.console()  # the refusal is reported there as well


def test_jobs_in_work_are_a_queue_with_their_progress(page, key, tmp_path):
    talks = [tmp_path / f"talk {number}.flac" for number in range(3)]
    for talk in talks:
        talk.write_bytes(long_recording(12))
    page.open("#files", key=key)
    upload(page, *talks)
    page.until_text("#queue", "talk 0.flac.*talk 1.flac.*talk 2.flac", max_s=60)
    page.until_text("#queue", r"talk 0.flac Transcribing, \d+ %", max_s=60)
    names = [bar.get_attribute("aria-label") for bar in page.all("#queue progress")]
    assert names == [f"Progress of {talk.name}" for talk in talks]
    assert page.nameless() == []
    for number in (2, 1, 0):
        page.tab_to(f"#queue button[aria-label='Cancel talk {number}.flac']", most=80)
        page.press(Keys.ENTER)
        page.until_text("#jobs", f"talk {number}.flac.*canceled", max_s=60)
    page.until(lambda: not page.all("#queue li"), "an empty queue")
    assert not page.all("#queue-title")[0].is_displayed()


def test_the_words_of_a_transcript_are_found(page, key):
    page.open("#files", key=key)
    upload(page, CLIP)
    page.until_text("#job-view .transcript", re.escape(SAID), max_s=40)
    page.tab_to("#job-find input")
    page.press(*"ENGINE  across")
    page.until_text("#job-find [role=status]", "1 of 1")
    assert [word.text for word in page.all(".found.here")] == ["engine", "across"]
    page.press(*(Keys.BACKSPACE * len("ENGINE  across")))
    page.press("o")
    page.until_text("#job-find [role=status]", "1 of 3")
    page.press(Keys.ENTER)
    assert [word.text for word in page.all(".found.here")] == [SAID.split()[3]]
    page.press(Keys.SHIFT, Keys.ENTER)
    page.press("zz")
    page.until_text("#job-find [role=status]", "Not found")
    assert page.all(".found") == []


@pytest.fixture
def call(server: Server, key: str) -> str:
    """Return the id of a job: a call whose two sides say the same, one after the other."""
    samples, rate = soundfile.read(CLIP, dtype="int16")
    sound = io.BytesIO()
    silence = np.zeros_like(samples)
    sides = np.stack((np.concatenate((samples, silence)), np.concatenate((silence, samples))), axis=1)
    soundfile.write(sound, sides, rate, format="WAV")
    with server.client(key) as client:
        form = {"channels": "separate", "word_timestamps": "true", "output_formats": "json,srt,vtt,txt,docx"}
        return str(
            client.post("/v1/transcribe", files={"file": sound.getvalue()}, data=form, timeout=120).json()["job_id"]
        )


def test_a_transcript_says_who_speaks(page, call, key):
    page.open(f"#job/{call}", key=key)
    shown = page.until_text("#job-view .transcript", f"S1 .*{re.escape(SAID)}.*S2 .*{re.escape(SAID)}", max_s=40)
    assert shown.count(SAID) == 2
    assert page.nameless() == []


def revision(server: Server, key: str, job: str) -> int:
    with server.client(key) as client:
        return int(client.get(f"/v1/jobs/{job}").json()["revision"])


def test_a_speaker_gets_a_name_that_the_server_keeps(page, server, call, key):
    page.open(f"#job/{call}", key=key)
    page.until_text("#job-view .transcript", "S1 .*S2 ", max_s=40)
    page.tab_to("#job-speakers input")
    page.press(*"Ann")
    page.until_text("#job-view .transcript", f"Ann .*{re.escape(SAID)}.*S2 .*{re.escape(SAID)}")
    assert [button.accessible_name for button in page.all(".time")] == ["Play from 0:00, Ann", "Play from 0:03, S2"]
    assert page.nameless() == []
    assert page.pale() == []
    page.until(lambda: revision(server, key, call) == 1, "a correction")
    page.driver.refresh()
    page.until_text("#job-view .transcript", "Ann .*S2 ", max_s=40)
    page.tab_to("#job-speakers input")
    page.press(Keys.END, *(Keys.BACKSPACE * 3))
    page.until_text("#job-view .transcript", "S1 .*S2 ")
    assert page.script("return Object.keys(localStorage)") == ["scribewire.key"]


@pytest.mark.parametrize("name", ["constructor", "x" * 64])  # every object of JavaScript has a constructor
def test_a_known_person_on_both_channels_has_paragraphs_of_each(page, server, key, name):
    samples, rate = soundfile.read(CLIP, dtype="int16")
    later = np.zeros(rate, np.int16)
    sound = io.BytesIO()
    sides = np.stack((np.concatenate((samples, later)), np.concatenate((later, samples))), axis=1)
    soundfile.write(sound, sides, rate, format="WAV")
    form = {
        "channels": "separate",
        "word_timestamps": "true",
        "diarize": "true",
        "known_speaker_names": name,
        "known_speaker_references": f"data:audio/flac;base64,{base64.b64encode(CLIP.read_bytes()).decode()}",
    }
    with server.client(key) as client:
        job = client.post("/v1/transcribe", files={"file": sound.getvalue()}, data=form, timeout=120).json()
    page.open(f"#job/{job['job_id']}", key=key)
    page.until_text("#job-view .transcript", rf"{name}\s+{re.escape(SAID)}.*{name}\s+{re.escape(SAID)}", max_s=40)
    assert page.all(".transcript.named"), "there is room for names"
    page.look(size=NARROW)
    assert page.sideways() == 0


def test_names_of_speakers_are_in_the_files_that_are_saved(page, server, call, key, tmp_path):
    page.download_to(tmp_path)
    page.open(f"#job/{call}", key=key)
    page.until_text("#job-view .transcript", "S1 .*S2 ", max_s=40)
    page.tab_to("#job-speakers input")
    page.press(*"Ann <A>", Keys.TAB, *"Bo", Keys.TAB)
    page.until(lambda: revision(server, key, call) == 2, "two corrections")
    for link in page.all("#job-downloads a"):
        link.click()
    (name,) = {path.stem for path in [*page.until(lambda: sorted(tmp_path.glob("*.srt")), "a file")]}
    assert re.findall(r"^(.+?): One", page.saved(tmp_path / f"{name}.srt").decode(), re.MULTILINE) == ["Ann <A>", "Bo"]
    voices = re.findall(r"^<v (.+?)>One", page.saved(tmp_path / f"{name}.vtt").decode(), re.MULTILINE)
    assert voices == ["Ann &lt;A&gt;", "Bo"]
    segments = orjson.loads(page.saved(tmp_path / f"{name}.json"))["segments"]
    assert [segment["speaker"] for segment in segments] == ["Ann <A>", "Bo"]
    with zipfile.ZipFile(io.BytesIO(page.saved(tmp_path / f"{name}.docx"))) as word:
        assert word.testzip() is None
        assert re.findall(r">([^<>]+): </w:t>", word.read("word/document.xml").decode()) == ["Ann &lt;A&gt;", "Bo"]


def listed(server: Server, key: str, name: str, content: bytes, **fields: str) -> str:
    """Transcribe a file called *name*, and return its job's id."""
    with server.client(key) as client:
        answer = client.post("/v1/transcribe", files={"file": (name, content)}, data=fields, timeout=120)
        return str(answer.raise_for_status().json()["job_id"])


def test_the_recording_that_the_server_keeps_is_played(page, server, key):
    kept = listed(server, key, "kept.flac", CLIP.read_bytes(), record="true", word_timestamps="true")
    page.open(f"#job/{kept}", key=key)
    page.click("#job-listen")
    page.until(lambda: page.script("return document.querySelector('video').currentTime > 0.5"), "sound")
    assert page.script("return document.querySelector('video').src").startswith(f"{page.base}/v1/jobs/{kept}/")


def test_a_recording_that_was_not_kept_is_asked_for_and_the_text_can_be_copied(page, server, key):
    job = listed(server, key, "gone.flac", CLIP.read_bytes(), word_timestamps="true")
    page.open(f"#job/{job}", key=key)
    page.until_text("#job-view .transcript", re.escape(SAID), max_s=40)
    page.script("navigator.clipboard.writeText = async (text) => { window.copied = text }")
    page.click("#job-copy")
    page.until(lambda: page.script("return window.copied?.trim()") == SAID, "the text")
    page.click("#job-listen")
    page.until_text("#job-file", "was not asked to keep this audio.*Choose the file")
    page.all("#job-file input")[0].send_keys(str(CLIP))
    page.element(".player")
    assert not page.all("#job-file")[0].is_displayed()


def test_jobs_are_found_by_name_chosen_together_and_saved_as_one_archive(page, server, key, tmp_path):
    whole = CLIP.read_bytes()
    wide = io.BytesIO()
    soundfile.write(wide, *soundfile.read(CLIP, dtype="int16"), format="WAV")
    listed(server, key, "Interview One.flac", whole, output_formats="txt,docx")
    listed(server, key, "interview two.wav", wide.getvalue()[:-20_000], output_formats="txt")
    page.download_to(tmp_path)
    page.open("#files", key=key)
    page.element("#jobs-search input").send_keys("INTERVIEW")
    page.until(lambda: len(page.all("#jobs li")) == 2, "the two")
    page.until_text("#jobs", "interview two.wav.*cut short.*Interview One.flac.*done")
    assert not page.element("#jobs-zip").is_enabled()
    page.tab_to("#jobs-all")
    page.press(Keys.SPACE)
    page.until_text("#jobs-count", "2 chosen")
    page.click("#jobs-zip")
    with zipfile.ZipFile(io.BytesIO(page.saved(tmp_path / "transcripts.zip"))) as archive:
        assert archive.testzip() is None
        assert set(archive.namelist()) == {"interview two.txt", "Interview One.txt", "Interview One.docx"}
        assert archive.read("Interview One.txt").decode().strip() == SAID
    assert page.nameless() == []
    page.click("#jobs-delete")
    page.driver.switch_to.alert.accept()
    page.until_text("#jobs-none", "No job has these words or this name")


def test_a_file_is_sent_again_by_itself_when_the_server_is_back(browser, server, key):
    with cable(server.base) as line:
        page = Page(browser, line.base)
        page.open("#files", key=key)
        page.element("#jobs-none, #jobs li")
        line.cut()
        upload(page, CLIP)
        page.until_text("#uploads li", "en_02.flac.*does not answer. The file will be sent again by itself", max_s=40)
        page.script("location.hash = '#job/job_00000000000000000000000000'")
        page.until_text("#job-title", "does not answer", max_s=40)
        page.script("location.hash = '#files'")
        line.mend()
        page.until_text("#job-view .transcript", re.escape(SAID), max_s=60)
        browser.get("about:blank")


def test_a_channel_each_is_offered_where_two_people_talk_at_the_same_time(page, server, key):
    readers = [soundfile.read(SPEECH / "human" / name, dtype="int16")[0] for name in ("jfk.flac", "austen_0870.flac")]
    sides = np.stack([reader[: min(map(len, readers))] for reader in readers], axis=1)
    sound = io.BytesIO()
    soundfile.write(sound, sides, 16_000, format="WAV")
    job = listed(server, key, "talk.wav", sound.getvalue(), record="true", word_timestamps="true")
    page.open(f"#job/{job}", key=key)
    page.until_text("#job-warnings", "each channel as a speaker", max_s=40)
    page.click("#job-apart")
    page.until_text("#job-view .transcript", "S1 .*S2 ", max_s=60)


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """Yield another web server with the clips."""
    with host_folder(CLIP.parent) as address:
        yield address


def test_an_address_is_fetched_and_its_sound_can_be_added(page, key, elsewhere):
    page.open("#files", key=key)
    page.element("#url").send_keys(f"{elsewhere}/{CLIP.name}\n")
    page.until_text("#job-view .transcript", re.escape(SAID), max_s=40)
    page.element(".player")
    page.click("#job-price")
    page.until(lambda: page.element("#prompt").get_attribute("value") == SAID, "the transcript as a prompt")


def test_what_is_no_audio_is_said_in_a_sentence(page, key, tmp_path):
    (tmp_path / "notes.mp3").write_text("no sound here\n" * 50)
    page.open("#files", key=key)
    upload(page, tmp_path / "notes.mp3")
    page.until_text("#files-problem", "not an audio or video file")
    assert [message for message in page.console() if "415" not in message] == []


def test_a_deleted_job_is_gone_from_the_list(page, key):
    page.open("#files", key=key)
    upload(page, SPEECH / "espeak" / "en_03.flac")
    page.until_text("#job-view .transcript", "Eleven yellow", max_s=40)
    page.click("#job-delete")
    page.driver.switch_to.alert.accept()
    page.until(lambda: page.all("#jobs li") and "en_03.flac" not in page.text("#jobs"), "list without it")


def test_words_from_a_transcript_are_never_markup(page, key):
    """The name of a file is also text of the user, and is shown with the transcript."""
    page.open("#files", key=key)
    name = "<img src=x onerror=alert(1)>.flac"
    page.script("""
      const [bytes, name] = arguments;
      const files = new DataTransfer();
      files.items.add(new File([Uint8Array.from(bytes)], name, { type: "audio/flac" }));
      window.dispatchEvent(new DragEvent("drop", { dataTransfer: files, bubbles: true, cancelable: true }));
    """, list(CLIP.read_bytes()), name)  # fmt: skip
    page.until_text("#job-view .transcript", re.escape(SAID), max_s=40)
    assert page.text("#job-title") == name
    assert page.all("#job-view img") == []

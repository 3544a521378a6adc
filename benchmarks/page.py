"""How soon people who speak into the page see words: python -m benchmarks.page [--rounds 5]

    .venv/bin/python -m benchmarks.page --model tests/speech/tiny-whisper --speech made

Chromium's fake microphone plays a clip, by default a person's, from its start whenever it is opened. The result has the
seconds from the first sound of speech to the first text on the page and to the first final word, and the word errors
of everything that the page shows at the end. Needs chromium and chromium-driver. Writes
benchmarks/results/page.json, for made speech page-made.json.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from benchmarks.choices import Choices, add_choices, choices_of
from benchmarks.measure import spread, write
from benchmarks.scoring import spoken_words, word_errors
from benchmarks.serving import serving
from benchmarks.tracks import PEOPLE, SPEECH, rows_of
from tests.web.browsing import Page, chromium

CLIPS = {"people": (PEOPLE, "jfk.flac"), "made": (SPEECH, "espeak/en_05.flac")}
END_S = 0.8  # after the clip, in the pause before the microphone plays it again
LOUD = 0.02  # of full scale: speech has begun
WATCH = """
  const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
  window.seen = {};
  navigator.mediaDevices.getUserMedia = async (...wishes) => {
    const stream = await open(...wishes);
    window.seen.began = performance.now();
    return stream;
  };
  addEventListener("DOMContentLoaded", () => {
    const text = document.querySelector("#speak-text");
    new MutationObserver(() => {
      if (!text.innerText.trim()) return;
      window.seen.first ??= performance.now();
      if (text.querySelector(".final:not(:empty)")) window.seen.final ??= performance.now();
    }).observe(text, { childList: true, subtree: true, characterData: true });
  });
"""


def onset_s(clip: Path) -> float:
    samples, rate = soundfile.read(clip, dtype="float32")
    return float(np.argmax(np.abs(samples) > LOUD)) / rate


def measure_page(choices: Choices, rounds: int) -> dict[str, Any]:
    folder_of_clips, name = CLIPS[choices.speech]
    text, seconds, clip = next(
        (row["text"], row["seconds"], path) for row, path in rows_of(folder_of_clips) if row["file"] == name
    )
    said = spoken_words(text, "en")
    seen: dict[str, list[float]] = {"first": [], "final": []}
    errors = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(ENGINE="whisper", WHISPER_MODEL=choices.model) as server,
        chromium(Path(folder), clip) as browser,
    ):
        page = Page(browser, server.base)
        browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
        for _ in range(rounds):
            page.open("#speak", key=server.key)
            page.click("#speak-toggle")
            times = page.until(
                lambda: now if (now := page.script("return window.seen")).get("final") else None, "words"
            )
            for what, values in seen.items():
                values.append((times[what] - times["began"]) / 1000 - onset_s(clip))
            time.sleep(max(0.0, seconds + END_S - (times["final"] - times["began"]) / 1000))
            page.click("#speak-toggle")
            page.until_text("#speak-standing", "Done")
            errors += word_errors(said, spoken_words(page.text("#speak-text"), "en"))
    return {
        "clip": name,
        "rounds": rounds,
        "first_text_s": spread(seen["first"]),
        "first_final_word_s": spread(seen["final"]),
        "wer": round(errors / (rounds * len(said)), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_choices(parser)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-write", action="store_true", help="print only")
    args = parser.parse_args()
    choices = choices_of(args)
    result = {**choices.about(), **measure_page(choices, args.rounds)}
    print(result)
    if not args.no_write:
        print(write(choices.result("page"), result))


if __name__ == "__main__":
    main()

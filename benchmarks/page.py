"""How soon somebody who speaks into the page sees words: python -m benchmarks.page [--rounds 5]

Chromium's microphone plays a clip from its beginning whenever it is opened. Counted are the seconds from the first
sound of speech in it to the first text that the page shows, and to the first final word, with the small Whisper model.
Needs chromium and chromium-driver. Writes benchmarks/results/page.json.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from benchmarks.measure import spread, write
from benchmarks.serving import serving
from benchmarks.tracks import MODEL, SPEECH
from tests.web.browsing import Page, chromium

ENGINES = {
    "whisper": (
        SPEECH / "espeak" / "en_05.flac",
        {"ENGINE": "whisper", "WHISPER_MODEL": MODEL},
    ),
}
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


def measured(engine: str, rounds: int) -> dict[str, Any]:
    clip, settings = ENGINES[engine]
    seen: dict[str, list[float]] = {"first": [], "final": []}
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(**settings) as server,
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
            page.click("#speak-toggle")
            page.until_text("#speak-standing", "Done")
    return {"clip": clip.name, "first_text_s": spread(seen["first"]), "first_final_word_s": spread(seen["final"])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    result = {"rounds": args.rounds, "engines": {name: measured(name, args.rounds) for name in ENGINES}}
    print(result)
    print(write("page", result))


if __name__ == "__main__":
    main()

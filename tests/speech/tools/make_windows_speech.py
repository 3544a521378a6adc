"""Write the speech that a model's windows are fitted on: .venv/bin/python -m tests.speech.tools.make_windows_speech

From the clips in tests/speech: people reading English (public domain), and espeak-ng in Spanish for models that know
more than one language. Samples are stored as differences, which compress better.
"""

import json

import numpy as np

from benchmarks.conditions import pauses
from benchmarks.measure import ROOT
from benchmarks.tracks import Track, clips
from pipeline.audio import RATE

PEOPLE = (
    "austen_0870",
    "austen_0880",
    "austen_0890",
    "austen_0920",
    "austen_0930",
    "LJ001-0002",
    "LJ001-0004",
    "LJ001-0013",
    "jfk",
)
SPANISH = ("es_11",)
OUT = ROOT / "pipeline/recognition/engines/whisper/windows_speech.npz"


def main() -> None:
    people = {clip.name: clip for clip in clips(ROOT / "tests/speech/human")}
    made = {clip.name: clip for clip in clips(ROOT / "tests/speech") if "espeak" in clip.name}
    chosen = [("people", _clip_named(people, name)) for name in PEOPLE]
    chosen += [("espeak es", _clip_named(made, name)) for name in SPANISH]
    rows, arrays = [], {}
    for number, (voice, clip) in enumerate(chosen):
        name = f"s{number:02}"
        samples = np.round(clip.samples * 32768).clip(-32768, 32767).astype(np.int16)
        arrays[name] = np.diff(samples, prepend=np.int16(0))  # wraps around, and back when it is summed up
        rows.append(
            {
                "name": name,
                "voice": voice,
                "language": clip.language,
                "words": [[word.text, round(word.start, 2), round(word.end, 2)] for word in clip.truth],
                "cuts": [[round(at, 3), words] for at, words in pauses(clip)],
            }
        )
    arrays["rows"] = np.frombuffer(json.dumps(rows, ensure_ascii=False).encode(), dtype=np.uint8)
    np.savez_compressed(OUT, **arrays)
    seconds = sum(len(array) for name, array in arrays.items() if name != "rows") / RATE
    print(f"{len(rows)} clips, {seconds:.0f} s, {sum(len(row['words']) for row in rows)} words, ", end="")
    print(f"{OUT.stat().st_size} bytes")


def _clip_named(found: dict[str, Track], name: str) -> Track:
    [clip] = [clip for key, clip in found.items() if key.removesuffix(".flac").endswith(name)]
    return clip


if __name__ == "__main__":
    main()

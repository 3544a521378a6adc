"""Writes the speech that fits the windows of a model: python benchmarks/make_windows_speech.py

It comes from the clips in tests/speech, cut into sentences at their pauses if the word times are known.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

ROOT = Path(__file__).parents[1]
CLIPS = {
    "espeak en": ("espeak/en_06", "espeak/en_07", "espeak/en_08", "espeak/en_05"),
    "espeak es": ("espeak/es_11", "espeak/es_12"),
    "flite": ("flite/rms_0", "flite/slt_1", "flite/awb_2"),
}
PAUSE_S = 0.2


def sentences(row: dict[str, Any], samples: Any) -> Iterator[tuple[str, Any]]:
    """Yield (text, samples) of each sentence, or of the whole clip if its word times are unknown."""
    words = row["words"]
    if words is None:
        yield row["text"], samples
        return
    first, begin = 0, 0
    for index, (word, _, end) in enumerate(words):
        last = index == len(words) - 1
        if last or (word[-1] in ".?!" and words[index + 1][1] - end >= PAUSE_S):
            cut = len(samples) if last else round((end + words[index + 1][1]) / 2 * 16_000)
            yield " ".join(entry[0] for entry in words[first : index + 1]), samples[begin:cut]
            first, begin = index + 1, cut


def main() -> None:
    manifest = {row["file"]: row for row in json.loads((ROOT / "tests/speech/manifest.json").read_text())}
    rows, arrays = [], {}
    for voice, names in CLIPS.items():
        for name in names:
            row = manifest[f"{name}.flac"]
            samples, _ = soundfile.read(ROOT / "tests/speech" / row["file"], dtype="int16")
            for text, part in sentences(row, samples):
                key = f"s{len(rows):02}"
                arrays[key] = part
                rows.append({"name": key, "text": text, "language": row["language"], "voice": voice})
    arrays["rows"] = np.frombuffer(json.dumps(rows, ensure_ascii=False).encode(), dtype=np.uint8)
    out = ROOT / "pipeline/recognition/engines/windows_speech.npz"
    np.savez_compressed(out, **arrays)
    seconds = sum(len(array) for key, array in arrays.items() if key != "rows") / 16_000
    print(f"{len(rows)} sentences, {seconds:.0f} s, {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()

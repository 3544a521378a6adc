"""Words at pauses: short answers after one, and how far word times are from the sound, beside transcribe().

    .venv/bin/python -m benchmarks.pauses answers --count 100            # "No." after a pause, at the end
    .venv/bin/python -m benchmarks.pauses times en es fr it ru           # clips joined with pauses of 0.6 to 6 s
    .venv/bin/python -m benchmarks.pauses times es --half judging --ways files live --result pauses

Rules are chosen on the tuning half alone. Answers are ten short ones of voices of flite and espeak-ng, after sentences
of people; the judging half has other sentences and other voices. An answer is right if it is there once; it is lost
if no word follows the sentence. Times are compared with where the sound of each clip begins and ends. transcribe()
has the same weights, beam 5, the language given and its voice filter. Live words run on a clock of CPU time alone.
"""

import argparse
import json
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.corpora import PROMPTS, Clip, read, samples_of
from benchmarks.language_scores import Heard, Recording, compare, figures
from benchmarks.languages import Ours, chosen, hear_as_they
from benchmarks.live_scores import Shown
from benchmarks.measure import write
from benchmarks.tracks import PEOPLE
from benchmarks.word_times import Span, offsets, sound_of, summary
from pipeline.audio import RATE, Samples
from pipeline.words import Word

FILES, LIVE, THEIRS = "files", "live", "transcribe()"
ANSWERS = ("No.", "Yes.", "Dot com.", "Okay.", "Thanks.", "Maybe.", "Sure.", "Never.", "Goodbye.", "Tomorrow.")
SPELLED = {"com": "dotcom", "thankyou": "thanks", "bye": "goodbye"}
VOICES = {"tuning": ("slt", "rms", "kal"), "judging": ("awb", "kal16", "en-gb", "en-us")}
PAUSES_S = (0.6, 1.0, 1.5, 2.0, 3.0)
AFTER_S = 0.8
LONGEST_S = 15.0  # of a sentence
LONG_PAUSES_S = (0.6, 6.0)
HUSH = 3e-4  # of the room: -70 dBFS
WANTED = ("words", "errors", "wer", "cpu_per_s", "final_after_s", "each")  # of the figures of recordings


def hush(seconds: float, chance: np.random.Generator) -> Samples:
    return np.asarray(chance.standard_normal(round(seconds * RATE)) * HUSH, np.float32)


def paused_track(clips: Sequence[Clip], seed: int) -> Recording:
    """Return the clips one after the other, with pauses of LONG_PAUSES_S with the noise of a room."""
    chance, parts, places, at = np.random.default_rng(seed), list[Samples](), list[tuple[int, int, Clip]](), 0
    for clip in clips:
        samples = samples_of(clip)
        places.append((at, at + len(samples), clip))
        parts += [samples, hush(chance.uniform(*LONG_PAUSES_S), chance)]
        at += sum(map(len, parts[-2:]))
    return Recording("paused", np.concatenate(parts), tuple(places))


def spoken(text: str, voice: str) -> Samples:
    """Return *text* as a voice of flite or espeak-ng says it, without silence at its ends."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "said.wav"
        said = ["espeak-ng", "-v", voice, "-w", str(path), text]
        if "-" not in voice:
            said = ["flite", "-voice", voice, "-t", text, "-o", str(path)]
        subprocess.run(said, check=True)
        samples = read(path)
    loud = np.flatnonzero(np.abs(samples) > 0.01)
    return samples[loud[0] : loud[-1] + 1]


def with_people(language: str, half: str, seconds: float) -> list[Clip]:
    """Return clips of a half, in English by turns with those of other people, all shorter than LONGEST_S."""
    clips = chosen(language, half, seconds)
    if language != "en":
        return clips
    rows = json.loads((PEOPLE / "manifest.json").read_text())
    listed = [Clip("en", PEOPLE / Path(row["file"]).name, row["text"]) for row in rows if row["seconds"] < LONGEST_S]
    own = [clip for clip in listed if clip.judges == (half == "judging")]
    return [clip for pair in zip_longest(clips, own) for clip in pair if clip is not None]


def answered(half: str, count: int) -> Iterator[Recording]:
    """Yield sentences of people, each with a pause and an answer at its end."""
    chance = np.random.default_rng(5)
    sentences = [clip for clip in with_people("en", half, 600.0) if clip.text]
    own = [clip for clip in sentences if clip.path.parent == PEOPLE]
    sentences = [clip for pair in zip(cycle(own), sentences, strict=False) for clip in pair]
    said = {(text, voice): spoken(text, voice) for text in ANSWERS for voice in VOICES[half]}
    for number in range(count):
        clip, text = sentences[number % len(sentences)], ANSWERS[number % len(ANSWERS)]
        voice, pause_s = VOICES[half][number // 10 % len(VOICES[half])], PAUSES_S[number // 3 % len(PAUSES_S)]
        sentence, answer = samples_of(clip), said[text, voice]
        sentence = sentence[: round(sound_of(sentence)[1] * RATE)]
        level = float(np.abs(sentence).max() / np.abs(answer).max())
        parts = [sentence, hush(pause_s, chance), answer * np.float32(level), hush(AFTER_S, chance)]
        start = len(sentence) + len(parts[1])
        samples = np.asarray(np.concatenate(parts) + hush(sum(map(len, parts)) / RATE, chance), np.float32)
        place = (start, start + len(answer), Clip("en", clip.path, text))
        yield Recording(f"{clip.path.stem} {pause_s} {voice} {text}", samples, (place,))


def judged(recording: Recording, words: Sequence[Word]) -> str:
    """Return whether the answer was recognized: once, twice, lost, or as something else."""
    start, _, clip = recording.clips[0]
    heard = _letters(" ".join(word.text for word in words if word.end > start))
    said = _letters(clip.text)
    if heard == said:
        return "once"
    if not heard:
        return "lost"
    return "twice" if (len(heard) % 2 == 0 and heard[: len(heard) // 2] * 2 == heard) or said * 2 in heard else "other"


def _letters(text: str) -> str:
    """Return the letters of *text*, of a word that can be spelled in several ways always in the same."""
    letters = "".join(re.findall("[a-z]", text.lower()))
    return "okay" * (len(letters) // 2) if letters == "ok" * (len(letters) // 2) else SPELLED.get(letters, letters)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("answers", "times"))
    parser.add_argument("corpora", nargs="*", metavar="CORPUS", help=f"for times, of {', '.join(PROMPTS)}")
    parser.add_argument("--half", choices=("tuning", "judging"), default="tuning")
    parser.add_argument("--ways", nargs="+", choices=(FILES, LIVE, THEIRS), default=[FILES, THEIRS])
    parser.add_argument("--count", type=int, default=60, help="of answers")
    parser.add_argument("--seconds", type=float, default=80.0, help="for times, of clips of a language")
    parser.add_argument("--show", action="store_true", help="print each answer that is wrong, and each time that is")
    parser.add_argument("--result", help="name of the result file; without it the figures are only printed")
    given = parser.parse_args()
    ours = Ours()
    result: dict[str, Any] = {"half": given.half}
    if given.what == "answers":
        groups = {"en": list(answered(given.half, given.count))}
    else:
        groups = {
            code: [paused_track(with_people(code, given.half, given.seconds), 3)] for code in given.corpora or PROMPTS
        }
    for language, recordings in groups.items():
        ways: dict[str, Callable[[Sequence[Recording]], Iterator[Heard]]] = {
            FILES: partial(ours.hear_files, given=True),
            LIVE: partial(ours.hear_live, given=True),
            THEIRS: partial(hear_as_they, "tiny.en" if language == "en" else "base", filtered=True),
        }
        rows: dict[str, Any] = {}
        for way in given.ways:
            heard = list(ways[way](recordings))
            rows[way] = answers_row(recordings, heard) if given.what == "answers" else times_row(recordings, heard)
            print(
                f"{language} {way:12}",
                *(f"{name} {value}" for name, value in rows[way].items() if name != "each"),
                flush=True,
            )
            if given.show:
                show(recordings, heard, answers=given.what == "answers")
            if way != THEIRS and THEIRS in rows and given.what == "times":
                print(compare(rows[way], rows[THEIRS]))
        result[language] = rows
    if given.result:
        print(write(given.result, result))


def answers_row(recordings: Sequence[Recording], heard: Sequence[Heard]) -> dict[str, Any]:
    found = Counter(judged(*pair) for pair in zip(recordings, (one.words for one in heard), strict=True))
    return {"answers": len(recordings), **found, "cpu_s": round(sum(one.cpu_s for one in heard), 1)}


def times_row(recordings: Sequence[Recording], heard: Sequence[Heard]) -> dict[str, Any]:
    both = [offsets(sounds_in(recording), shown(one.words)) for recording, one in zip(recordings, heard, strict=True)]
    row = figures(recordings, heard, finds=False)
    wanted = {
        name: row[name] for name in ("words", "errors", "wer", "cpu_per_s", "final_after_s", "each") if name in row
    }
    return {
        **wanted,
        "starts": summary([value for starts, _ in both for value in starts]),
        "ends": summary([value for _, ends in both for value in ends]),
    }


def sounds_in(recording: Recording) -> list[Span]:
    """Return where the sound of each clip begins and ends."""
    return [
        (start / RATE + first, start / RATE + last)
        for start, end, _ in recording.clips
        for first, last in [sound_of(recording.samples[start:end])]
    ]


def shown(words: Sequence[Word]) -> list[Shown]:
    """Return the words with times in seconds."""
    return [Shown(word.text, word.start / RATE, word.end / RATE) for word in words]


def show(recordings: Sequence[Recording], heard: Sequence[Heard], *, answers: bool) -> None:
    for recording, one in zip(recordings, heard, strict=True):
        if answers and (verdict := judged(recording, one.words)) != "once":
            tail = " ".join(f"{word.text}[{word.start / RATE:.2f}-{word.end / RATE:.2f}]" for word in one.words[-5:])
            print(f"   {verdict:6} {recording.name} at {recording.clips[0][0] / RATE:.2f}: {tail}")
        elif not answers:
            starts, ends = offsets(sounds_in(recording), shown(one.words))
            print("   starts", *(f"{value:+.2f}" for value in starts))
            print("   ends  ", *(f"{value:+.2f}" for value in ends))


if __name__ == "__main__":
    main()

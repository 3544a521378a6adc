"""Counts repeated words, lost words and exact digits in numbers, prices, spelled words and lists.

    .venv/bin/python -m benchmarks.said                              # all phrases; writes results/said.json
    .venv/bin/python -m benchmarks.said --kinds price card --half development --no-write --show

benchmarks/phrases.py makes the phrases. Files take the path of an upload and live sessions get the audio at the speed
of speech, on a clock on which no computation takes time. transcribe() and BatchedInferencePipeline of faster-whisper
get the same files with the same weights. A unit is a word, a figure of a number, or a letter of a spelled word, so
that "830-166" and "eight three zero one six six" are six units both. A phrase is "told twice" if a system has two or
more units more than transcribe() has, "lost" if it has two or more fewer, and its digits are exact if all its figures
come out, in order and no others. transcribe() itself repeats and loses some, so even a perfect transcript counts as
"told twice" and "lost" in some phrases: the system "what was said" shows in how many. "more than said" and "fewer than
said" compare each system with what was said.
"""

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.accuracy import OURS, THEIRS, by_batched, by_transcribe, by_us, from_files
from benchmarks.choices import add_choices, choices_of
from benchmarks.file_scores import RecognitionResult
from benchmarks.latency import TIMELESS, Bench
from benchmarks.live_scores import count_said_twice
from benchmarks.measure import write
from benchmarks.phrases import KINDS, Phrase, both_halves, phrases, record_phrase
from benchmarks.scoring import spoken_words, word_errors
from benchmarks.tracks import Track
from pipeline.ingest.vad import VoiceDetector
from pipeline.recognition.engines.load import EngineSettings, load
from pipeline.words import join_words

BATCHED, LIVE = "faster-whisper BatchedInferencePipeline", "scribewire live"
SAID = "what was said"
"""The exact text of the phrases, as if a system had no fault."""

MANY = 2  # units more or fewer with which a phrase counts as told twice or lost

_LEFT_OUT = frozenset({"dot", "at", "oclock", "o'clock", "and", "dollars", "cents"})  # also written as marks, or not
_MIXED = re.compile(r"([a-z]+)([0-9]+)|([0-9]+)([a-z]+)")
_SPELLED = re.compile(r"(?:\b[A-Z]\. ?){3,}")


@dataclass(frozen=True, slots=True)
class PhraseResult:
    """What one system recognised in one phrase, in units."""

    reference: Sequence[str]
    words: Sequence[str]
    words_of_transcribe: Sequence[str]

    @property
    def twice(self) -> bool:
        return len(self.words) - len(self.words_of_transcribe) >= MANY

    @property
    def lost(self) -> bool:
        return len(self.words_of_transcribe) - len(self.words) >= MANY

    @property
    def more(self) -> bool:
        return len(self.words) - len(self.reference) >= MANY

    @property
    def fewer(self) -> bool:
        return len(self.reference) - len(self.words) >= MANY

    @property
    def exact(self) -> bool:
        return figures(self.reference) == figures(self.words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_choices(parser)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND")
    parser.add_argument("--half", choices=("development", "held out"), help="of the phrases (default: both)")
    parser.add_argument("--seed", type=int, default=1, help="of all that is random in the phrases")
    parser.add_argument("--show", action="store_true", help="print the phrases that were told twice or lost")
    parser.add_argument("--no-write", action="store_true", help="print only")
    given = parser.parse_args()
    choices = choices_of(given)
    made = [phrase for phrase in phrases(given.seed, given.kinds) if given.half in (None, half(phrase))]
    texts = heard_by_all(choices.model, [record_phrase(phrase, given.seed) for phrase in made])
    texts[SAID] = [phrase.text for phrase in made]
    result = {**choices.about(), "seed": given.seed, "phrases": len(made)}
    for name, group in both_halves(made):
        if not group:
            continue
        result[name] = {system: summary(rows) for system, rows in compare_systems(group, made, texts).items()}
        for system, figures_of in result[name].items():
            print(f"{name:12} {system:42}", "  ".join(f"{key} {value}" for key, value in figures_of["all"].items()))
    if given.show:
        show(made, texts)
    if not given.no_write:
        print(write(choices.result("said"), result))


def half(phrase: Phrase) -> str:
    return "held out" if phrase.held_out else "development"


def heard_by_all(model: str, tracks: Sequence[Track]) -> dict[str, list[str]]:
    """Return the text of each track by each system."""
    systems = {OURS: by_us, THEIRS: by_transcribe, BATCHED: by_batched}
    texts = {name: [text_of(answer) for answer in from_files(tracks, hears(model))] for name, hears in systems.items()}
    return {**texts, LIVE: live(model, tracks)}


def text_of(answer: RecognitionResult) -> str:
    """Return the text of an answer. Words of faster-whisper bring the space before them, where there is one."""
    texts = [word.text for word in answer.words]
    return ("" if any(text.startswith(" ") for text in texts) else " ").join(texts).strip()


def live(model: str, tracks: Sequence[Track]) -> list[str]:
    """Return the final words of each track, spoken in a session of its own. No computation takes time."""
    engine = load(EngineSettings(engine="whisper", model=model, device="cpu", threads=1))
    bench = Bench(engine, VoiceDetector(), clock=TIMELESS)
    return [join_words(words) for words in bench.final_words(tracks)]


def units(text: str, spelled: Sequence[str] = ()) -> list[str]:
    """Return the units of *text* to compare: words, figures one by one, and the letters of words in *spelled*."""
    found: list[str] = []
    for word in spoken_words(text, "en"):
        for part in filter(None, _MIXED.fullmatch(word).groups()) if _MIXED.fullmatch(word) else (word,):
            plain = part.replace(".", "")
            if plain.isdecimal() or part in spelled:
                found += plain
            elif part not in _LEFT_OUT:
                found.append(part)
    return [
        "0" if unit == "oh" and "".join(found[at + 1 : at + 2]).isdecimal() else unit for at, unit in enumerate(found)
    ]


def figures(found: Sequence[str]) -> str:
    """Return the figures among the units."""
    return "".join(unit for unit in found if unit.isdecimal())


def spelled_in(text: str) -> list[str]:
    """Return what the single letters of *text* spell: recognisers may write it as a word."""
    return ["".join(found.split()).lower().replace(".", "") for found in _SPELLED.findall(text)]


def compare_systems(
    group: Sequence[Phrase], made: Sequence[Phrase], texts: Mapping[str, Sequence[str]]
) -> dict[str, list[tuple[Phrase, PhraseResult]]]:
    """Return by system each phrase of *group* with its result."""
    numbers = [made.index(phrase) for phrase in group]
    rows: dict[str, list[tuple[Phrase, PhraseResult]]] = {}
    for system, answers in texts.items():
        rows[system] = []
        for phrase, number in zip(group, numbers, strict=True):
            spelled = spelled_in(phrase.text)
            three = (phrase.text, answers[number], texts[THEIRS][number])
            rows[system].append((phrase, PhraseResult(*(units(text, spelled) for text in three))))
    return rows


def summary(rows: Sequence[tuple[Phrase, PhraseResult]]) -> dict[str, dict[str, Any]]:
    """Return the figures of one system, of all phrases and by kind."""
    kinds = dict.fromkeys(phrase.kind for phrase, _ in rows)
    return {
        "all": counts([row for _, row in rows]),
        **{kind: counts([row for phrase, row in rows if phrase.kind == kind]) for kind in kinds},
    }


def counts(rows: Sequence[PhraseResult]) -> dict[str, Any]:
    """Return the figures of some phrases."""
    numbered = [row for row in rows if figures(row.reference)]
    words = sum(len(row.reference) for row in rows)
    return {
        "phrases": len(rows),
        "told twice": sum(row.twice for row in rows),
        "lost": sum(row.lost for row in rows),
        "more than said": sum(row.more for row in rows),
        "fewer than said": sum(row.fewer for row in rows),
        "with digits": len(numbered),
        "digits exact": sum(row.exact for row in numbered),
        "units": words,
        "errors": round(sum(word_errors(row.reference, row.words) for row in rows) / words, 4) if words else None,
        "units repeated": sum(count_said_twice(row.reference, row.words) for row in rows),
    }


def show(made: Sequence[Phrase], texts: Mapping[str, Sequence[str]]) -> None:
    """Print the phrases that this project repeats or loses, as files and live."""
    rows = compare_systems(made, made, texts)
    for system in (OURS, LIVE):
        for number, (phrase, row) in enumerate(rows[system]):
            if row.twice or row.lost:
                what = "twice" if row.twice else "lost"
                print(f"{system}, {phrase.name}, {what}: {texts[system][number]}\n    {texts[THEIRS][number]}")


if __name__ == "__main__":
    main()

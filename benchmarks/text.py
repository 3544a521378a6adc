"""What the text stage does: secrets that are hidden, numbers as people write them, and what holding words costs.

    .venv/bin/python -m benchmarks.text              # writes results/text.json
    .venv/bin/python -m benchmarks.text --no-write --show

- Secrets: synthetic voices say cards, telephone numbers, social security numbers, IBANs and e-mail addresses, as files
  and live on a clock on which no computation takes time. A secret counts if it is recognised in the file: a card as 12
  figures or more, and so on. It is hidden if nothing of it is left, neither a figure nor the name of an address's host.
- Numerals are scored on made sentences whose numbers are known (those of other languages than English are in
  numbers.tsv), and on sentences without numbers. numbers_held_out.tsv was written when the rules were done.
- Names are those of names.py.
- Waiting is the time from the end of each word of people's clips to its release by the text stage, with all options and
  without the time of the recogniser, for all clips and for those without numbers.
- Latency is that of final words in whole live sessions, without options and with all, on a clock that counts the CPU
  time of everything, for clips of people and for those of them without numbers.
"""

import argparse
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.choices import add_choices, choices_of
from benchmarks.latency import TIMELESS, Bench
from benchmarks.measure import spread, write
from benchmarks.names import HELD_OUT, hearings
from benchmarks.names import scores as name_scores
from benchmarks.phrases import CONDITIONS, KINDS, Phrase, cardinal, digits, ordinal, record_phrase
from benchmarks.tracks import Track
from benchmarks.virtual_time import VirtualTimeLoop
from pipeline.audio import RATE
from pipeline.events import WordsCommitted
from pipeline.ingest.vad import VoiceDetector
from pipeline.recognition.engines.load import EngineSettings, load
from pipeline.recognition.scheduler import Scheduler
from pipeline.recognition.stream import StreamCore
from pipeline.session import Session
from pipeline.text.figures import Reader
from pipeline.text.options import REDACTIONS, TextOptions
from pipeline.text.rewriting import TextRewriter
from pipeline.text.stage import TextStage
from pipeline.timed_events import TimedEvent
from pipeline.words import Word, join_words

EACH = 12  # phrases of each kind of secret, if --each does not say otherwise
NUMBERS = 200  # English sentences with numbers
SENTENCES = Path(__file__).parent / "numbers.tsv"  # of other languages, made by make_numbers.py
FRESH_SENTENCES = Path(__file__).parent / "numbers_held_out.tsv"  # written by hand, after the rules
ALL = TextOptions(
    numerals=True,
    redact=tuple(kind for kind in REDACTIONS if kind != "numbers"),
    profanity_filter=True,
    replace=("new york city:NYC",),
    sounds_like=HELD_OUT,
    phone_region="US",
    paragraphs=True,
    search=("country",),
)
VOICES = ("espeak:en-us", "espeak:en-gb", "flite:slt", "flite:rms")
HOST = "example"
_LETTERS = ("G B", "D E", "N L")
_NAMES = ("anna", "peter dot miller", "susan", "john dash walker")


def _ssn(chance: random.Random) -> str:
    return f"{digits(chance, 3)}, {digits(chance, 2)}, {digits(chance, 4)}"


def _iban(chance: random.Random) -> str:
    return f"{chance.choice(_LETTERS)} {digits(chance, 2)}, {', '.join(digits(chance, 4) for _ in range(4))}"


def _email(chance: random.Random) -> str:
    return f"{chance.choice(_NAMES)} at {HOST} dot com"


SECRETS: Mapping[str, tuple[Callable[[random.Random], str], Sequence[str], int]] = {
    "card": (*KINDS["card"], 12),
    "telephone": (*KINDS["telephone"], 10),
    "ssn": (_ssn, ("My social security number is {}. Is that all?", "It is {}, right?"), 9),
    "iban": (_iban, ("Send it to {}. Thank you.", "The account is {}, in my name."), 12),
    "email": (_email, ("Please write to {}. Thank you.", "My address is {}."), 0),
}
"""By kind: the function that makes a secret, sentences, and the fewest figures with which it counts as recognised."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One secret, said once."""

    kind: str
    plain: str  # what is recognised, without redaction
    shown: str
    way: str  # files or live

    @property
    def heard(self) -> bool:
        least = SECRETS[self.kind][2]
        if least == 0:
            return HOST in self.plain.lower() and any(sign in self.plain for sign in ("@", " at "))
        return figures(self.plain) >= least

    @property
    def hidden(self) -> bool:
        return "[" in self.shown and not figures(self.shown) and HOST not in self.shown.lower()


class _Bench(Bench):
    """Streams to sessions with this text stage."""

    text: TextOptions | None = None

    def _session(self, scheduler: Scheduler, name: str) -> Session:
        rewriter = None if self.text is None else TextRewriter(TextStage(self.text, language="en"))
        core = StreamCore(self._options)
        return Session(
            core,
            vad=self._voice.stream(),
            recogniser=scheduler,
            tenant=name,
            text=rewriter,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_choices(parser)
    parser.add_argument("--seed", type=int, default=1, help="of all that is random")
    parser.add_argument("--each", type=int, default=EACH, help=f"phrases of each kind of secret (default: {EACH})")
    parser.add_argument("--show", action="store_true", help="print what was not hidden or written otherwise")
    parser.add_argument("--no-write", action="store_true", help="print only")
    given = parser.parse_args()
    choices = choices_of(given)
    engine, voice = load(EngineSettings(engine="whisper", model=choices.model)), VoiceDetector()
    bench = _Bench(engine, voice, clock=TIMELESS)
    outcomes = secrets(bench, given.each, given.seed)
    sentences = [*number_sentences(given.seed), *read_sentences(FRESH_SENTENCES)]
    wrong = [one for one in sentences if written_by_stage(one[1], one[0]) != one[2]]
    tracks = choices.clips()
    clips = [bench.offline(clip.samples, "en") for clip in tracks]
    result = {
        **choices.about(),
        "seed": given.seed,
        "redaction": {way: scores([one for one in outcomes if one.way == way]) for way in ("files", "live")},
        "numerals": numerals(number_sentences(given.seed), clips),
        "numerals held out": numerals(read_sentences(FRESH_SENTENCES), ()),
        "names": name_scores([*hearings(bench)], through),
        "waiting": measure_waits(clips),
        "latency": latency(_Bench(engine, voice, clock=partial(VirtualTimeLoop, time.process_time)), tracks, clips),
    }
    for name, row in result.items():
        print(f"{name:12}", row)
    if given.show:
        for outcome in outcomes:
            if outcome.heard and not outcome.hidden:
                print(f"{outcome.way:5} {outcome.kind:10} {outcome.plain!r} -> {outcome.shown!r}")
        for language, said, wanted in wrong:
            print(f"{language} {said!r} -> {written_by_stage(said, language)!r}, not {wanted!r}")
    if not given.no_write:
        print(write(choices.result("text"), result))


def figures(text: str) -> int:
    """Return how many figures are said in *text*."""
    words = place_words(text)
    reader = Reader("en")
    return sum(len(reader.figures(words[run.start : run.stop])) for run in reader.runs(words, reader.has_figure))


def place_words(text: str) -> list[Word]:
    """Return the words of *text*, a third of a second each."""
    return [Word(part, at * RATE // 3, (at + 1) * RATE // 3, 0.9) for at, part in enumerate(text.split())]


def through(words: Sequence[Word], options: TextOptions, *, language: str = "en", patient: bool = False) -> list[Word]:
    """Return *words* after the text stage."""
    stage = TextStage(options, language=language, patient=patient)
    decided = [placed for word in words for placed in stage.add(word, 0)]
    return [word for word, _ in [*decided, *stage.release()]]


# --- secrets ---------------------------------------------------------------------------------------------------------


def secrets(bench: _Bench, each: int, seed: int) -> list[Outcome]:
    """Return the outcome of made secrets, as files and live."""
    named = [(kind, phrase) for kind in SECRETS for phrase in secret_phrases(kind, each, seed)]
    tracks = [record_phrase(phrase, seed) for _, phrase in named]
    outcomes = []
    for (kind, _), track in zip(named, tracks, strict=True):
        words = bench.offline(track.samples, "en")
        outcomes.append(Outcome(kind, join_words(words), join_words(through(words, ALL, patient=True)), "files"))
    bench.text = ALL
    live = zip(outcomes, bench.final_words(tracks), strict=True)
    return [*outcomes, *(Outcome(one.kind, one.plain, join_words(words), "live") for one, words in live)]


def secret_phrases(kind: str, each: int, seed: int) -> list[Phrase]:
    maker, sentences, _ = SECRETS[kind]
    chance = random.Random(f"{seed} {kind}")
    names = [name for name in CONDITIONS if name != "telephone"]
    return [
        Phrase(
            f"{kind} {number}",
            kind,
            held_out=True,
            text=sentences[number % len(sentences)].format(maker(chance)),
            voice=VOICES[number % len(VOICES)],
            pace=1.0,
            condition=names[number // len(VOICES) % len(names)],
        )
        for number in range(each)
    ]


def scores(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for kind in SECRETS:
        heard = [one for one in outcomes if one.kind == kind and one.heard]
        rows[kind] = {"heard": len(heard), "hidden": sum(one.hidden for one in heard)}
    heard = [one for one in outcomes if one.heard]
    return {**rows, "share": round(sum(one.hidden for one in heard) / max(1, len(heard)), 4)}


# --- numerals --------------------------------------------------------------------------------------------------------


def numerals(sentences: Iterable[tuple[str, str, str]], clips: Sequence[Sequence[Word]]) -> dict[str, Any]:
    """Return how many sentences with numbers are written as people would, and how many without are changed."""
    rows: dict[str, dict[str, Any]] = {}
    for language, said, wanted in sentences:
        row = rows.setdefault(language, {"sentences": 0, "as_written": 0, "without_numbers": 0, "changed": 0})
        shown = written_by_stage(said, language)
        if said == wanted:
            row["without_numbers"] += 1
            row["changed"] += shown != said
        else:
            row["sentences"] += 1
            row["as_written"] += shown == wanted
    return {**rows, "clips of people": count_untouched(clips)} if clips else rows


def number_sentences(seed: int) -> Iterator[tuple[str, str, str]]:
    """Yield sentences: their language, what is said and what is to be written."""
    chance = random.Random(seed)
    makers = (_cardinal_sentence, _year_sentence, _ordinal_sentence, _digits_sentence)
    for number in range(NUMBERS):
        yield ("en", *makers[number % len(makers)](chance))
    yield from read_sentences(SENTENCES)


def read_sentences(path: Path) -> Iterator[tuple[str, str, str]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        language, said, wanted = line.split("\t")
        yield language, said, wanted


def _cardinal_sentence(chance: random.Random) -> tuple[str, str]:
    value = chance.choice((chance.randint(10, 99), chance.randint(101, 999), chance.randint(1001, 999_999)))
    text = f"{value:,}" if value >= 10_000 else str(value)
    return f"They sold {cardinal(value)} of them.", f"They sold {text} of them."


def _year_sentence(chance: random.Random) -> tuple[str, str]:
    year = chance.randint(1910, 1999)
    return f"It was built in {cardinal(year // 100)} {cardinal(year % 100)}.", f"It was built in {year}."


def _ordinal_sentence(chance: random.Random) -> tuple[str, str]:
    day = chance.randint(10, 31)
    ending = {21: "st", 31: "st", 22: "nd", 23: "rd"}.get(day, "th")
    return f"She came on the {ordinal(day)} of May.", f"She came on the {day}{ending} of May."


def _digits_sentence(chance: random.Random) -> tuple[str, str]:
    said = digits(chance, chance.randint(3, 8))
    return f"The code is {said}.", f"The code is {''.join(str(FIGURES.index(figure)) for figure in said.split())}."


FIGURES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def written_by_stage(text: str, language: str) -> str:
    return join_words(through(place_words(text), TextOptions(numerals=True), language=language))


def count_untouched(clips: Sequence[Sequence[Word]]) -> dict[str, int]:
    """Return how many of people's clips without numbers are changed by numerals."""
    reader = Reader("en")
    without = [words for words in clips if not any(reader.has_figure(word.text) for word in words)]
    changed = [
        words for words in without if join_words(through(words, TextOptions(numerals=True))) != join_words(words)
    ]
    return {"without_numbers": len(without), "changed": len(changed)}


# --- waiting ---------------------------------------------------------------------------------------------------------


def measure_waits(clips: Sequence[Sequence[Word]]) -> dict[str, Any]:
    """Return for how long words wait in the stage, in seconds of audio, and its CPU time."""
    reader = Reader("en")
    rows: dict[str, list[float]] = {"all": [], "without_numbers": []}
    began = time.process_time()
    for words in clips:
        waits = waits_of(words)
        rows["all"] += waits
        if not any(reader.has_figure(word.text) for word in words):
            rows["without_numbers"] += waits
    cpu_ms = 1000 * (time.process_time() - began)
    count = sum(map(len, clips))
    means = {f"mean_{name}": round(float(np.mean(waits)), 4) for name, waits in rows.items() if waits}
    return {
        **{name: spread(waits) for name, waits in rows.items()},
        **means,
        "cpu_ms_per_word": round(cpu_ms / count, 4),
    }


def waits_of(words: Sequence[Word]) -> list[float]:
    """Return how long after its end the stage passes each word on, if words are decided when they end."""
    stage = TextStage(ALL, language="en")
    waits = []
    for word in words:
        waits += [(word.end - told.end) / RATE for told, _ in stage.add(word, 0)]
    return [*waits, *(0.0 for _ in stage.release())]


# --- latency ---------------------------------------------------------------------------------------------------------


def latency(bench: _Bench, tracks: Sequence[Track], clips: Sequence[Sequence[Word]]) -> dict[str, Any]:
    """Return how late final words are in live sessions without options and with all, in seconds.

    *clips* has the words of each of *tracks*, so that sentences without numbers can be told from the others.
    """
    reader = Reader("en")
    plain = [not any(reader.has_figure(word.text) for word in words) for words in clips]
    rows: dict[str, Any] = {}
    for name, options in (("without options", None), ("with all options", ALL)):
        bench.text = options
        sessions: list[list[TimedEvent]] = []
        bench.one_by_one(tracks, sessions)
        lags = [lags_of(heard) for heard in sessions]
        rows[name] = {
            "all": spread([lag for some in lags for lag in some]),
            "without_numbers": spread([lag for some, quiet in zip(lags, plain, strict=True) if quiet for lag in some]),
        }
    return rows


def lags_of(heard: Sequence[TimedEvent]) -> list[float]:
    """Return for each final word the seconds from the arrival of its end to its event."""
    return [lag for happened in heard if isinstance(happened.event, WordsCommitted) for lag in happened.lags_s]


if __name__ == "__main__":
    main()

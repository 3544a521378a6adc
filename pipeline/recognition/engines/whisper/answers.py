"""Judges an answer of the model: whether its text can have been spoken, and which speech it has no words for.

In silence, noise and music Whisper writes subtitles that it was trained on ("Thank you."), and it may repeat itself
without end. Each gate tests one simple property of an answer. Of 120 files and sessions of noise, hum, breath and
typing at six levels none got a word.

Whisper may also end its answer after the first of several sentences, or leave one out. Nothing in the answer shows
that, but the voice detector does. Whisper stretches words over pauses too, so each word is first shortened to the
longest time that it can take, and to the first pause in it if it is longer. If there is then at least UNHEARD of speech
between two words, or after the last one, it was missed.

The voice detector often reports speech for a moment after a word has ended. Less than REST of it is not missed speech.
If the audio to recognise again began there, its first word would get that time and seem to be there already. People
pause between the groups of a number, so a stretch shorter than UNHEARD is joined with its neighbour, however long the
pause between them. Longer stretches are recognised one by one, because the model may leave out the same sentence again
if it gets several.
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeAlias
from unicodedata import east_asian_width

from pipeline.audio import RATE, position
from pipeline.languages import CREDITS, comparable, plain
from pipeline.recognition.agreement import select_of_turn
from pipeline.recognition.engine import DecodeRequest, RecognitionResult
from pipeline.recognition.voicing import longest_time
from pipeline.words import Word

NO_SPEECH = 0.6  # the model's own probability of no speech must be above this ...
UNLIKELY = -1.0  # ... and the mean log-probability below this, to count as no speech (openai/whisper)
VOICE_S = 0.4  # if the voice detector found fewer seconds of speech than this ...
UNDETECTED = 0.3  # ... the probability of no speech may not be above this: noises and melodies got 0.5 to 0.99
FEW_LETTERS = 12  # so short a text may be as fast as it likes
REPETITION = 2.4  # a text with a higher zlib ratio repeats itself (openai/whisper)
LETTERS_PER_S = 30.0  # nobody speaks faster, in any script; English with 8 tokens a second
HURRIED = 24.0  # letters for each second of speech: people have fewer, in phrases that they repeat as well
ECHO = 3  # words of a phrase that begins anew at the end of an answer
TIMELESS = 3  # words in a row without any time: none in 1,200 answers of tiny.en and base was where it was said
CREDIT_SHARE = 0.3  # of the text: who speaks of subtitles says more than the credit

Span: TypeAlias = tuple[int, int]
"""Start and end, as positions."""

UNHEARD = position(0.8)
"""The least speech without a word that is worth recognising again. Less is a drawn-out vowel or a breath.

tiny.en lost 85 of 1,600 words of joined clips in blocks of three and more. With this it lost none, and 5.8 instead of
10.6 % of the words were wrong.
"""

ANSWER = position(0.2)
"""The least speech between two pauses that is worth recognising again if no word is there: "No." takes 0.3 s."""

PAUSE = position(0.5)
"""A stretch of missed speech that has UNHEARD of speech ends at a silence of this length."""

REST = position(0.2)
"""Less speech than this between a word and a pause is the end of that word."""

TAIL = 2 * REST
"""Speech this close to the end of the audio may belong to a word that has yet to end."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """The encoder output of one call. All its rows have the same window."""

    states: Any  # ctranslate2.StorageView
    window_s: int
    rows: int


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """The answer of the decoder to one request. *row* is its place in *encoded*, *failed* the gate that it fails."""

    tokens: tuple[int, ...]
    text: str
    language: str
    language_probability: float
    task: str
    avg_logprob: float
    no_speech_prob: float
    failed: str | None
    encoded: Encoded
    row: int

    def with_words(self, words: tuple[Word, ...]) -> RecognitionResult:
        """Return the result of the request, in which *words* were found."""
        scores = self.avg_logprob, self.no_speech_prob
        return RecognitionResult(words, self.language, self.language_probability, *scores)


def compression_ratio(text: str) -> float:
    """Return the size of the text divided by its size after zlib. For normal speech it is below 2."""
    data = text.encode()
    return len(data) / len(zlib.compress(data))


def failed_gate(
    text: str,
    *,
    seconds: float,
    avg_logprob: float,
    no_speech_prob: float,
    cut_off: bool,
    voiced_s: float = 0.0,
) -> str | None:
    """Return the name of the first gate that this answer fails, or None if it is accepted.

    *seconds*: the length of the audio without padding.
    *cut_off*: the answer reached its limit of tokens before the model ended it.
    *voiced_s*: how much speech the voice detector found, in seconds; 0 if that is unknown.
    """
    if not _letters(text):
        return "no_words"
    if is_no_speech(avg_logprob=avg_logprob, no_speech_prob=no_speech_prob, voiced_s=voiced_s):
        return "no_speech"
    if is_credit(text) and (no_speech_prob > NO_SPEECH or 0 < HURRIED * voiced_s < _letters(text)):
        return "credit"
    fits = _letters(text) <= HURRIED * voiced_s  # people do repeat phrases
    if cut_off or (not fits and compression_ratio(text) > REPETITION):
        return "repetition"
    if _letters(text) > LETTERS_PER_S * seconds + FEW_LETTERS:
        return "too_fast"
    return None


def without_echo(words: Sequence[Word], voiced: Sequence[tuple[int, int]]) -> tuple[Word, ...]:
    """Return *words* without the rounds of a repeated phrase that nobody said.

    People repeat phrases, and Whisper writes each where it is said. But it may go on until its window is full, or begin
    its last phrase anew. The times show that: surplus rounds have hardly any. If the speech in *voiced* at the times of
    all rounds, or without any the time itself, is too short for those that are left, the first one stays. A single word
    may be repeated as fast as its time allows, because the voice detector misses some.
    """
    texts = [plain(word.text) for word in words]
    kept: list[Word] = []
    at = 0
    while at < len(words):
        size, stop = _repeated_run(texts, at)
        rounds = [words[first : min(first + size, stop)] for first in range(at, stop, size)]
        rounds[1:] = [
            one
            for one in rounds[1:]
            if size == 1 or _count_letters(one) <= LETTERS_PER_S * (one[-1].end - one[0].start) / RATE
        ]
        spans = voiced if voiced and size > 1 else [(words[at].start, words[stop - 1].end)]
        voice = sum(max(0, min(words[stop - 1].end, end) - max(words[at].start, start)) for start, end in spans)
        if sum(map(_count_letters, rounds)) > max(HURRIED * voice / RATE, FEW_LETTERS):
            del rounds[1:]
        kept += [word for one in rounds for word in one]
        at = stop
    return tuple(kept)


def before_timeless(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """Return the *words* before some that got no time.

    Whisper runs ahead of a speaker, begins a phrase anew, or finds no place for words. The next answer has them where
    they are said; after a final the speech that is left without words is recognised again.
    """
    for at in range(len(words) - TIMELESS + 1):
        if words[at].start == words[at + TIMELESS - 1].end:
            return words[:at]
    return words


def _repeated_run(texts: Sequence[str], at: int) -> tuple[int, int]:
    """Return the length of the phrase that begins at *at* and is repeated, and where its rounds end; else one text."""
    for size in range(1, len(texts) - at):
        stop = at + size
        while stop < len(texts) and texts[stop] == texts[stop - size]:
            stop += 1
        if stop - at >= 2 * size or (stop == len(texts) and stop - at >= size + ECHO):
            return size, stop
    return 1, at + 1


def _count_letters(words: Sequence[Word]) -> int:
    return sum(_letters(word.text) for word in words)


def is_credit(text: str) -> bool:
    """Return whether *text* is hardly more than a credit of subtitles, such as "Untertitel im Auftrag des ZDF"."""
    found = comparable(text)
    return any(credit in found and len(credit) > CREDIT_SHARE * len(found) for credit in CREDITS)


def is_no_speech(*, avg_logprob: float, no_speech_prob: float, voiced_s: float = 0.0) -> bool:
    """Return whether nobody spoke: the model finds that likely, and its text unlikely or no speech was detected."""
    if voiced_s < VOICE_S:
        return no_speech_prob > UNDETECTED
    return no_speech_prob > NO_SPEECH and avg_logprob < UNLIKELY


def _letters(text: str) -> int:
    """Return how many letters *text* has. A full-width one is a syllable or a word and counts two."""
    return sum(1 + (east_asian_width(sign) in "WF") for sign in text if sign.isalnum())


def misses_turn(request: DecodeRequest, words: Sequence[Word]) -> bool:
    """Return whether *words*, the answer to a live *request*, leave out speech of the turn: they may end before it.

    In a final, speech without words was recognised by itself. So it only counts where a word that was said before the
    turn is placed on it.
    """
    if request.turn is None:
        return False
    end = request.start + len(request.samples) - TAIL
    voiced = request.between(max(request.turn, request.start), end).voiced
    own = select_of_turn(words, [word for word in request.decided if word.end <= request.turn], request.turn)
    return bool(missed_speech(own, voiced)) and not (request.final and missed_speech(words, voiced))


def skips_speech(request: DecodeRequest, words: Sequence[Word]) -> bool:
    """Return whether *words*, which begin with the decided ones of *request*, go on after speech that has none.

    Told that "the" was said last, Whisper may go on after a later "the".
    """
    last = len(request.decided)
    return 0 < last < len(words) and request.speech_between(request.decided[-1].end, words[last].start) >= UNHEARD


def missed_speech(words: Sequence[Word], voiced: Sequence[Span], since: int = 0, *, short: bool = False) -> list[Span]:
    """Return the spans after *since* with at least UNHEARD of speech and no word. Each begins and ends with speech.

    *voiced* has the spans in which somebody speaks. Words and spans are in order.
    *short*: also spans with at least ANSWER of speech between pauses.
    """
    stretches: list[list[int]] = []  # start, end, and the samples of speech between them
    for start, end in _subtract(voiced, [(0, since), *_word_spans(words, voiced)]):
        if end - start < REST and any(first < start and end == last for first, last in voiced):
            continue
        _, before, speech = stretches[-1] if stretches else (0, 0, 0)
        ended = speech >= UNHEARD and start - before >= PAUSE
        if stretches and not ended and not _word_begins(words, before, start):
            stretches[-1][1] = end
            stretches[-1][2] += end - start
        else:
            stretches.append([start, end, end - start])
    joined: list[list[int]] = []
    for start, end, voice in stretches:
        if joined and voice < UNHEARD and not _word_begins(words, joined[-1][1], start):
            joined[-1][1] = end
            joined[-1][2] += voice
        else:
            joined.append([start, end, voice])
    apart = _between_pauses(voiced) if short else ()
    return [
        (start, end)
        for start, end, voice in joined
        if voice >= UNHEARD or (voice >= ANSWER and any(first == start and last <= end for first, last in apart))
    ]


def _between_pauses(voiced: Sequence[Span]) -> list[Span]:
    """Return the spans from one pause to the next."""
    spans = list(voiced[:1])
    for first, last in voiced[1:]:
        if first - spans[-1][1] < PAUSE:
            spans[-1] = spans[-1][0], last
        else:
            spans.append((first, last))
    return spans


def _end_in_pauses(words: Sequence[Word], voiced: Sequence[Span]) -> list[Word]:
    """Return *words*. One that lasts too long ends at its first pause, if it has any."""
    pauses = [last for (_, last), (first, _) in pairwise(voiced) if first - last >= PAUSE]
    ended: list[Word] = []
    for word in words:
        end, longest = word.end, word.start + longest_time(word.text)
        if end > longest:
            end = next((pause for pause in pauses if word.start < pause < longest), end)
        ended.append(word.at(word.start, end))
    return ended


def with_missed(words: Sequence[Word], missed: Sequence[Word], stretch: Span) -> tuple[tuple[Word, ...], int]:
    """Return *words* and those of *missed* whose middle lies in *stretch*, in order, and where the last of them begins.

    *missed* is a second answer about *stretch* and a little audio around it, in which the first word or the last may
    be one that *words* have already. If it has none of *stretch*, the place is the end of that.
    """
    found = [word for word in missed if stretch[0] <= (word.start + word.end) // 2 < stretch[1]]
    before = [word for word in words if word.start < stretch[0]]
    after = list(words[len(before) :])
    if found and before and plain(found[0].text) == plain(before[-1].text):
        found = found[1:]
    if found and after and plain(found[-1].text) == plain(after[0].text):
        found = found[:-1]
    placed: list[Word] = []
    for word in (*before, *found, *after):
        if placed and placed[-1].end > word.start:
            placed[-1] = replace(placed[-1], end=max(placed[-1].start, word.start))
        start = max(word.start, placed[-1].end if placed else 0)
        placed.append(word.at(start, max(word.end, start)))
    return tuple(placed), max(found[-1].start, stretch[0] + UNHEARD) if found else stretch[1]


def _word_spans(words: Sequence[Word], voiced: Sequence[Span]) -> Iterator[Span]:
    """Yield the span that each word can cover. It begins with the first speech in or after the word."""
    for word in _end_in_pauses(words, voiced):
        start = next((max(word.start, first) for first, last in voiced if last > word.start), word.start)
        start = min(start, word.end)
        yield start, min(word.end, start + longest_time(word.text))


def _subtract(spans: Sequence[Span], holes: Sequence[Span]) -> Iterator[Span]:
    """Yield *spans* without *holes*. Both are in order."""
    for start, end in spans:
        at = start
        for first, last in holes:
            if last <= at or first >= end:
                continue
            if first > at:
                yield at, first
            at = max(at, last)
        if at < end:
            yield at, end


def _word_begins(words: Sequence[Word], start: int, end: int) -> bool:
    return any(start <= word.start < end for word in words)

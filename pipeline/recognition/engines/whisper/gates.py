"""Decides whether the text that Whisper answers can have been spoken in the audio. engine.py calls these functions.

In silence, noise and music Whisper writes subtitles that it was trained on ("Thank you."), and it may repeat itself
without end. Each gate tests one simple property of an answer. Of 120 files and sessions of noise, hum, breath and
typing at six levels none got a word.
"""

import zlib
from collections.abc import Sequence
from unicodedata import east_asian_width

from pipeline.audio import RATE
from pipeline.language_profiles import CREDITS, comparable
from pipeline.recognition.spoken_form import plain
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
        rounds[1:] = [one for one in rounds[1:] if size == 1 or _count_letters(one) <= LETTERS_PER_S * _seconds(one)]
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
    they are said; after a final the speech that is left without words is heard again.
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


def _seconds(words: Sequence[Word]) -> float:
    return (words[-1].end - words[0].start) / RATE


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

"""Decides whether the text that Whisper answers can have been spoken in the audio. whisper.py calls these functions.

In silence, noise and music Whisper writes subtitles that it was trained on ("Thank you."), and it may repeat itself
without end. Each gate tests one simple property of an answer. Of 120 files and sessions of noise, hum, breath and
typing at six levels none got a word.
"""

import zlib
from collections.abc import Sequence
from unicodedata import east_asian_width

from pipeline.audio import RATE
from pipeline.language_profiles import CREDITS, comparable
from pipeline.recognition.engines.repeats import FIGURE, LONGEST, repeated_figures, without_repeated_figures
from pipeline.recognition.spoken_form import FASTEST, is_number, units_of
from pipeline.words import Word

NO_SPEECH = 0.6  # the model's own probability of no speech must be above this ...
UNLIKELY = -1.0  # ... and the mean log-probability below this, to count as no speech (openai/whisper)
FEW_LETTERS = 12  # noise and music give a word or two: for so short a text ...
NO_SPEECH_IN_FEW, UNLIKELY_FEW = 0.5, -0.5  # ... these two are used: noise got -0.5 to -1.4, and 0.58 to 0.99 ...
VOICE_S = 0.4  # ... unless the voice detector found this much speech
REPETITION = 2.4  # a text with a higher zlib ratio repeats itself (openai/whisper)
LETTERS_PER_S = 30.0  # nobody speaks faster, in any script; English with 8 tokens a second
HURRIED = 16.0  # letters for each second of speech: people repeated a phrase with at most 15, the model with 17 to 350
MANY = 8  # nobody says a word or a figure so often in a row
ECHO = 3  # units of a phrase that begins anew at the end of an answer
CREDIT_HURRIED = 24.0  # letters for each second of speech: credits that are read aloud have fewer
CREDIT_SHARE = 0.3  # of the text: who speaks of subtitles says more than the credit
CAPTION_LETTERS = 5  # captions of sounds are in capitals ("MUZIEK", "ТРЕВОЖНАЯ МУЗЫКА"), and so are shorter names
DOUBT = -0.4  # a mean log-probability below this is worth a second look; at -0.3 three times as many for hardly less


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
    if is_no_speech(text, avg_logprob=avg_logprob, no_speech_prob=no_speech_prob, voiced_s=voiced_s):
        return "no_speech"
    if is_credit(text) and (no_speech_prob > NO_SPEECH or 0 < CREDIT_HURRIED * voiced_s < _letters(text)):
        return "credit"
    if text.isupper() and _letters(text) >= CAPTION_LETTERS and no_speech_prob > NO_SPEECH_IN_FEW:
        return "caption"
    once = without_repeated_figures(text)  # repeats.py finds out how many of them were said
    if (cut_off and once == text) or compression_ratio(once) > REPETITION:
        return "repetition"
    if _letters(once) > LETTERS_PER_S * seconds + FEW_LETTERS:
        return "too_fast"
    return None


def without_echo(words: Sequence[str], *, voiced_s: float, audio_s: float) -> int:
    """Return how many of *words* to keep so that the last sentence is not repeated. Words are without case and marks.

    After a short utterance Whisper may repeat the last sentence until its window is full.

    *voiced_s*: seconds of speech; if they are long enough for all words, all are kept.
    *audio_s*: seconds of audio; if they are long enough, a single repeated word is kept, because people do repeat words
    and the voice detector misses some.
    """
    letters = sum(map(_letters, words))
    if letters <= HURRIED * voiced_s:
        return len(words)
    count = len(words)
    one_word = letters > HURRIED * audio_s
    for size in range(1 if one_word else 2, len(words) // 2 + 1):
        tail = size  # how many words at the end repeat with this period
        while tail < len(words) and words[-tail - 1] == words[-tail - 1 + size]:
            tail += 1
        one = len(set(words[-tail:])) == 1 and not one_word
        figures = all(map(is_number, words[-tail:]))  # repeats.py shortens them
        if tail >= 2 * size and not one and not figures and sum(map(_letters, words[-tail:])) > FEW_LETTERS:
            count = min(count, len(words) - tail + size)
    return count


def count_before_echo(words: Sequence[Word], voiced: Sequence[tuple[int, int]]) -> int:
    """Return how many of *words* to keep so that the last phrase is there only once.

    At the end of short audio Whisper may begin its last phrase again: "for the budget review, for the budget". Both
    then share the time in which the phrase was said once. All words are kept if *voiced* has enough speech for both.
    """
    units = units_of(words)
    rows = list(repeated_figures(units))  # repeats.py shortens them
    for size in range(2, len(units)):
        again = 0  # how many units at the end are those of a round before
        while again < len(units) - size and units[-again - 1].text == units[-again - 1 - size].text:
            again += 1
        rounds = units[-again - size :]
        in_row = any(row[-1] + 1 == len(units) and (size <= LONGEST or len(row) >= len(rounds)) for row in rows)
        if again < min(size, ECHO) or in_row:
            continue
        start, end = rounds[0].start, rounds[-1].end
        spans = [(max(start, first), min(end, last)) for first, last in voiced or [(start, end)]]
        voice = sum(max(0, last - first) for first, last in spans)
        several = len({unit.text for unit in rounds}) > 1  # one word may be repeated where the voice detector missed it
        letters = several * sum(_letters(unit.text) for unit in rounds)
        fastest = sum(FIGURE if unit.is_figure else FASTEST for unit in rounds)
        too_fast = letters > max(HURRIED * voice / RATE, FEW_LETTERS) or fastest > max(voice, RATE)
        if too_fast or (not several and len(rounds) >= MANY):
            return units[-again].word
    return len(words)


def is_credit(text: str) -> bool:
    """Return whether *text* is hardly more than a credit of subtitles, such as "Untertitel im Auftrag des ZDF"."""
    found = comparable(text)
    return any(credit in found and len(credit) > CREDIT_SHARE * len(found) for credit in CREDITS)


def is_no_speech(text: str, *, avg_logprob: float, no_speech_prob: float, voiced_s: float = 0.0) -> bool:
    """Return whether the model finds it likely that nobody spoke, and its own text unlikely."""
    few = _letters(text) <= FEW_LETTERS and voiced_s < VOICE_S
    max_no_speech, min_logprob = (NO_SPEECH_IN_FEW, UNLIKELY_FEW) if few else (NO_SPEECH, UNLIKELY)
    return no_speech_prob > max_no_speech and avg_logprob < min_logprob


def _letters(text: str) -> int:
    """Return how many letters *text* has. A full-width one is a syllable or a word and counts two."""
    return sum(1 + (east_asian_width(sign) in "WF") for sign in text if sign.isalnum())

"""Tests of keywords: what the model is told, and what that changes for tiny.en."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.conditions import noisy
from benchmarks.scoring import spoken_words
from benchmarks.tracks import PEOPLE, Track, clips
from pipeline.recognition.engine import NO_HINTS, DecodeRequest, Hints
from pipeline.recognition.engines.load import load
from pipeline.recognition.engines.whisper.windows import hint_tokens
from pipeline.recognition.model_set import EngineSettings
from pipeline.words import join_words

RARE = {"austen_0890": "cold-hearted", "austen_0920": "respectable", "austen_0930": "amiable"}
OTHERS = ("Kubernetes", "Ljubljana", "metoprolol", "Siobhan")


def request_of(**members: Any) -> DecodeRequest:
    return DecodeRequest(samples=np.zeros(1, np.float32), start=0, **members)


@pytest.mark.parametrize(
    ("hints", "read"),
    [
        (Hints(("Siobhan", "Dr. Nguyen"), "A\ncall."), "Siobhan, Dr. Nguyen.|A call."),
        (Hints(("Siobhan",), "A call.", "en"), "Siobhan.|A call."),
        (Hints(("Siobhan",), "Un appel.", "fr"), "Siobhan.|"),
        (NO_HINTS, "|"),
    ],
)
def test_keywords_are_a_sentence_before_the_prompt_of_the_language(hints, read):
    texts: list[str] = []
    hint_tokens(request_of(language="en", hints=hints), lambda text: tuple(texts.append(text) or ()))
    assert "|".join(texts if hints.keywords else ["", *texts]) == read


@pytest.mark.parametrize(
    ("keywords", "prompt", "read"),
    [
        (0, 200, [*range(72, 200)]),
        (3, 200, [0, 1, 2, *range(75, 200)]),
        (3, 5, [0, 1, 2, *range(5)]),
        (200, 5, [*range(128)]),
    ],
)
def test_the_model_reads_the_keywords_and_then_the_end_of_the_prompt(keywords, prompt, read):
    def encode(text: str) -> tuple[int, ...]:
        return tuple(int(word.strip(",.")) for word in text.split())

    hints = Hints(tuple(map(str, range(keywords))), " ".join(map(str, range(prompt))))
    assert [*hint_tokens(request_of(hints=hints), encode)] == read


@pytest.fixture(scope="module")
def noise() -> list[Track]:
    """Return the sentences with the rare words, each in two draws of two kinds of noise, 5 dB below the voice."""
    people = [clip for clip in clips(PEOPLE) if Path(clip.name).stem in RARE]
    draws = [noisy(people, seed, colour=colour, snr_db=5) for seed in (1, 3) for colour in ("white", "pink")]
    return [track for draw in draws for track in draw]


def test_rare_words_are_found_in_noise_if_they_are_named_among_others(bundled_model, noise):
    """Names of other things are in the list as well, because a client does not know what will be said.

    How many words are found depends on the processor, because those that tiny.en just misses hang on rounding.
    """
    engine = load(EngineSettings(model=str(bundled_model)))

    def transcribe(track: Track, *keywords: str) -> str:
        [heard] = engine.recognise([DecodeRequest(samples=track.samples, start=0, hints=Hints(keywords))])
        return join_words(heard.words)

    try:
        found = {"unaided": 0, "named": 0}
        for track in noise:
            rare = next(word for name, word in RARE.items() if name in track.name)
            for way, keywords in (("unaided", ()), ("named", (*OTHERS, rare))):
                found[way] += set(spoken_words(rare)) <= set(spoken_words(transcribe(track, *keywords)))
    finally:
        engine.close()
    assert found["named"] > found["unaided"]

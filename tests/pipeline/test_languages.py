"""Tests of recordings in which people change the language: with rules alone, a scripted engine and a real one."""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from pipeline.audio import RATE
from pipeline.batch import Batch, BatchOptions
from pipeline.documents.assemble import assemble
from pipeline.documents.formats import segment_object, word_object
from pipeline.ingest.vad import Vad
from pipeline.recognition.engines.whisper.engine import WhisperEngine
from pipeline.recognition.model_set import ModelSet
from pipeline.recognition.routing import choose_language
from pipeline.words import Chunk
from tests.server.serving import isolation

SPEECH = Path(__file__).parents[1] / "speech"
TURNS = ("espeak/en_00.flac", "espeak/es_09.flac", "espeak/es_10.flac", "espeak/en_01.flac")
LANGUAGES = ["en", "es", "es", "en"]


@pytest.mark.parametrize(
    ("probabilities", "neighbour", "speech_s", "chosen"),
    [
        ({"en": 0.6, "es": 0.4}, None, 3.0, ("en", "es")),  # nothing else is known: both are heard
        ({"en": 0.8, "es": 0.2}, None, 3.0, ("en", None)),
        ({"en": 0.6, "es": 0.4}, None, 0.5, ("en", None)),
        ({"en": 0.6, "es": 0.4}, "es", 3.0, ("es", None)),  # the neighbours' is preferred ...
        ({"en": 0.89, "es": 0.11}, "es", 3.0, ("en", "es")),  # ... the words decide if it is much less probable ...
        ({"en": 0.9, "es": 0.1}, "es", 3.0, ("en", None)),  # ... unless the other one is certain
        ({"en": 0.89, "es": 0.01, "fr": 0.1}, "es", 3.0, ("en", "es")),
        ({"en": 0.89, "es": 0.11}, "es", 1.4, ("es", None)),  # in short phrases languages sound alike
        ({"en": 0.9, "es": 0.1}, "es", 0.3, ("en", "es")),  # ... so even where one seems certain the words decide
        ({"en": 0.6, "es": 0.4}, "en", 3.0, ("en", None)),
        ({"en": 0.6, "es": 0.4}, "de", 0.3, ("en", None)),  # it may not be found
    ],
)
def test_an_utterance_differs_from_its_neighbours_where_that_is_certain_or_its_words_say_so(
    probabilities, neighbour, speech_s, chosen
):
    found = choose_language(probabilities, neighbour=neighbour, speech_s=speech_s)
    assert (found.language, found.rival) == chosen
    assert found.probability == probabilities[found.language]


@pytest.fixture(scope="module")
def engine() -> Iterator[WhisperEngine]:
    with closing(WhisperEngine(SPEECH / "tiny-whisper", model="tiny-whisper")) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a conversation in English and Spanish, with a second between the turns."""
    pieces = [np.concatenate([soundfile.read(SPEECH / name, dtype="float32")[0], np.zeros(RATE)]) for name in TURNS]
    path = tmp_path_factory.mktemp("languages") / "both.wav"
    soundfile.write(path, np.concatenate(pieces), RATE)
    return path


def transcribe_file(engine: WhisperEngine, path: Path, *, done: Sequence[Chunk] = ()) -> list[Chunk]:
    async def main() -> list[Chunk]:
        with ThreadPoolExecutor(2) as threads:
            batch = Batch(
                engine=engine,
                models=ModelSet.of(engine),
                vad=Vad(),
                isolation=isolation(),
                threads=threads,
            )
            options = BatchOptions(tenant="acct", languages=frozenset({"en", "es"}))
            return [chunk async for chunk in batch.transcribe(path, options, done=done)]

    return asyncio.run(main())


def test_a_real_model_hears_each_turn_of_a_file_in_its_language(engine, recording):
    chunks = transcribe_file(engine, recording)
    segments = [segment for chunk in chunks for segment in chunk.segments]
    spoken = [segment.language for segment in segments]
    assert [language for at, language in enumerate(spoken) if at == 0 or language != spoken[at - 1]] == [
        "en",
        "es",
        "en",
    ]
    assert word_object(segments[0].words[0])["language"] == "en"
    assert segment_object(0, segments[0])["language"] == "en"
    whole = assemble(chunks, duration=chunks[-1].end, engine="e", model_of=lambda _: "m")
    assert (whole.language in LANGUAGES, 0.4 < (whole.language_probability or 0) < 1) == (True, True)
    assert transcribe_file(engine, recording, done=chunks[:1]) == chunks[1:], (
        "a file that is continued has the same text"
    )
    one_language = replace(segments[0].words[0], language=None)
    assert "language" not in word_object(one_language)

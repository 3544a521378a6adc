"""Tests of files whose voices are told apart: the turns are in the last chunk, also after a stop, and by channel."""

import logging
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from pathlib import Path

import numpy as np
import pytest
import soundfile

from pipeline.audio import RATE
from pipeline.batch import Batch, BatchOptions
from pipeline.documents.assemble import assemble
from pipeline.errors import SpeakersUnavailable
from pipeline.ingest.isolation import Isolation
from pipeline.ingest.vad import Vad
from pipeline.recognition.engines.scripted import ScriptedEngine
from pipeline.recognition.model_set import ModelSet
from pipeline.speakers.options import SpeakerOptions
from pipeline.speakers.windows import SpeakerModels
from pipeline.timeline import DecidedUpTo, SegmentEnd, SpeakerTurns, Words, entries_of, pack
from pipeline.words import Chunk
from tests.pipeline.conversations import SPEECH, conversation, models

PARTS = ("flite/rms_0.flac", "flite/slt_1.flac", "flite/rms_4.flac", "flite/slt_5.flac", "flite/rms_0.flac")


@pytest.fixture(scope="module")
def call(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return two people in turns on the left, and one of them on the right."""
    left, _ = conversation(*PARTS)
    right, _ = conversation(PARTS[1], PARTS[3])
    path = tmp_path_factory.mktemp("files") / "call.wav"
    soundfile.write(path, np.stack([left, np.pad(right, (0, len(left) - len(right)))], axis=1), RATE)
    return path


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("files") / "talk.wav"
    soundfile.write(path, conversation(*PARTS)[0], RATE)
    return path


class Recogniser(ScriptedEngine):
    """An engine with a model, as far as others can see."""

    name = "whisper"


@asynccontextmanager
async def batches(*, voices: SpeakerModels | None) -> AsyncIterator[Batch]:
    engine = Recogniser()
    with Isolation() as isolation, ThreadPoolExecutor(2) as threads, closing(ModelSet.of(engine)) as models:
        yield Batch(
            engine=engine,
            models=models,
            vad=Vad(),
            isolation=isolation,
            threads=threads,
            voices=voices,
        )


async def chunks(batch: Batch, path: Path, done: list[Chunk], *, separate: bool, most: int = 10) -> list[Chunk]:
    options = BatchOptions(tenant="t", language="en", separate=separate, speakers=SpeakerOptions(most=most, known={}))
    return [chunk async for chunk in batch.transcribe(path, options, done=done)]


async def test_the_last_chunk_has_all_turns_and_a_job_that_was_stopped_ends_with_the_same(talk):
    async with batches(voices=models()) as batch:
        made = await chunks(batch, talk, [], separate=False)
        assert len(made) > 1
        assert [chunk.turns is None for chunk in made] == [True] * (len(made) - 1) + [False]
        transcript = assemble(made, duration=made[-1].end, engine="e", model_of=lambda _: "m")
        assert list(transcript.speakers) == ["S1", "S2"]
        assert {part.speaker for part in transcript.segments} == {"S1", "S2"}
        assert models().cpu_s() > 0
        assert await chunks(batch, talk, made[:1], separate=False) == made[1:]


async def test_without_the_models_nobody_is_given_a_label(talk):
    async with batches(voices=None) as batch:
        with pytest.raises(SpeakersUnavailable, match="scripts/setup speakers") as raised:
            await chunks(batch, talk, [], separate=False)
        assert raised.value.retryable, "another node may have them"


async def test_voices_of_each_channel_have_their_own_numbers(call):
    async with batches(voices=models()) as batch:
        made = await chunks(batch, call, [], separate=True)
        turns = made[-1].turns
        assert {(turn.channel, turn.speaker) for turn in turns} == {(0, "S1"), (0, "S2"), (1, "S3")}
        fewer = (await chunks(batch, call, [], separate=True, most=2))[-1].turns
        assert {(turn.channel, turn.speaker) for turn in fewer} == {(0, "S1"), (1, "S2")}
        absent = await batch.learn_voices({"Ann": talk_of("espeak/es_09.flac")})
        speakers = SpeakerOptions(most=3, known=absent)
        options = BatchOptions(tenant="t", language="en", separate=True, speakers=speakers)
        with_ann = [chunk async for chunk in batch.transcribe(call, options)][-1].turns
        assert {(turn.channel, turn.speaker) for turn in with_ann} == {(0, "S1"), (1, "S2")}


async def test_nothing_that_a_voice_sounds_like_is_stored_or_logged(talk, caplog):
    caplog.set_level(logging.DEBUG)
    async with batches(voices=models()) as batch:
        known = await batch.learn_voices({"Ann": talk_of("flite/rms_4.flac")})
        options = BatchOptions(tenant="t", language="en", speakers=SpeakerOptions(known=known))
        made = [chunk async for chunk in batch.transcribe(talk, options)]
        assert "Ann" in {turn.speaker for turn in made[-1].turns or ()}
        for chunk in made:
            for entry in entries_of(chunk, words=0, segments=0, shown=True):
                assert isinstance(entry, Words | SegmentEnd | DecidedUpTo | SpeakerTurns)
                assert len(pack(entry)) < 2000, "an embedding would be longer"
    assert not [record for record in caplog.records if record.name.startswith("pipeline.speakers")]
    assert "Ann" not in caplog.text


def talk_of(name: str) -> bytes:
    return (SPEECH / name).read_bytes()

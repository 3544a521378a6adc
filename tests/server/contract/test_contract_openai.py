"""Tests of the real openai client with a real server."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import openai
import pytest

from pipeline.batch import BatchOptions
from pipeline.words import Chunk
from tests.server.running import CLIP, Server
from tests.server.serving import chunk, serve, wav


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key=server.new_key("pro"), base_url=server.base + "/v1", max_retries=0) as client:
        yield client


def cue_text(subtitles: str) -> str:
    """Return the words of all cues, without their numbers and times."""
    lines = [line for line in subtitles.splitlines() if line and not line.isdecimal() and "-->" not in line]
    return " ".join(lines)


def test_every_response_format_says_the_same(client: openai.OpenAI) -> None:
    text = client.audio.transcriptions.create(file=CLIP, model="whisper-1").text
    assert len(text.split()) > 10
    plain = client.audio.transcriptions.create(file=CLIP, model="whisper-1", response_format="text")
    assert str(plain).strip() == text
    srt = client.audio.transcriptions.create(file=CLIP, model="whisper-1", response_format="srt")
    assert str(srt).startswith("1\n00:00:0")
    assert cue_text(str(srt)) == text
    vtt = client.audio.transcriptions.create(file=CLIP, model="whisper-1", response_format="vtt")
    assert str(vtt).startswith("WEBVTT\n\n")
    assert cue_text(str(vtt).removeprefix("WEBVTT")) == text


def test_subtitles_have_the_shape_that_was_asked_for(client: openai.OpenAI) -> None:
    srt = client.audio.transcriptions.create(
        file=CLIP, model="whisper-1", response_format="srt", extra_body={"max_columns": 20, "max_lines": 1}
    )
    cues = str(srt).strip().split("\n\n")
    assert all(len(cue.splitlines()) == 3 and len(cue.splitlines()[2]) <= 20 for cue in cues)
    with pytest.raises(openai.UnprocessableEntityError, match="max_lines"):
        client.audio.transcriptions.create(file=CLIP, model="whisper-1", extra_body={"max_lines": 9})


def test_words_come_only_with_their_granularity(client: openai.OpenAI) -> None:
    bare = client.audio.transcriptions.create(file=CLIP, model="whisper-1", response_format="verbose_json")
    assert bare.words is None
    assert bare.segments
    assert bare.language == "en"
    full = client.audio.transcriptions.create(
        file=CLIP, model="whisper-1", response_format="verbose_json", timestamp_granularities=["word"]
    )
    assert full.words
    assert " ".join(word.word for word in full.words) == full.text
    assert full.words[0].start < full.words[-1].end <= full.duration


def test_streamed_deltas_add_up_to_the_text(client: openai.OpenAI) -> None:
    deltas, done = [], None
    for event in client.audio.transcriptions.create(file=CLIP, model="whisper-1", stream=True):
        if event.type == "transcript.text.delta":
            deltas.append(event.delta)
        elif event.type == "transcript.text.done":
            done = event.text
    assert len(deltas) > 10
    assert "".join(deltas) == done


async def without_spaces(_path: Path, _options: BatchOptions, _done: Sequence[Chunk]) -> AsyncGenerator[Chunk]:
    made = chunk(0, "你", "好")
    words = tuple(replace(word, spaced=False) for word in made.segments[0].words)
    yield replace(made, segments=(replace(made.segments[0], words=words),))


def test_streamed_deltas_of_a_script_without_spaces_add_up_too(tmp_path: Path) -> None:
    with serve(tmp_path) as server, openai.OpenAI(api_key=server.key(), base_url=server.base + "/v1") as client:
        server.batch.scripts["chinese"] = without_spaces
        events = list(
            client.audio.transcriptions.create(file=("a.wav", wav()), model="whisper-1", prompt="chinese", stream=True)
        )
    assert [event.delta for event in events if event.type == "transcript.text.delta"] == ["你", "好"]
    assert events[-1].type == "transcript.text.done"
    assert events[-1].text == "你好"


def test_errors_are_the_clients_own(server: Server, client: openai.OpenAI) -> None:
    stranger = openai.OpenAI(api_key="sw_live_wrong", base_url=server.base + "/v1", max_retries=0)
    with stranger, pytest.raises(openai.AuthenticationError):
        stranger.audio.transcriptions.create(file=CLIP, model="whisper-1")
    with pytest.raises(openai.NotFoundError):
        client.audio.transcriptions.create(file=CLIP, model="gpt-9")
    with pytest.raises(openai.APIStatusError) as refused:
        client.audio.transcriptions.create(file=("a.mp3", b"no audio at all" * 50), model="whisper-1")
    assert refused.value.status_code == 415


def test_over_quota_is_a_rate_limit_error(server: Server) -> None:
    with openai.OpenAI(api_key=server.new_key("free"), base_url=server.base + "/v1", max_retries=0) as free:
        for _ in range(5):
            free.audio.transcriptions.create(file=CLIP, model="whisper-1")
        with pytest.raises(openai.RateLimitError):
            free.audio.transcriptions.create(file=CLIP, model="whisper-1")


def test_the_models_are_listed(client: openai.OpenAI) -> None:
    names = [model.id for model in client.models.list().data]
    assert names[0] == "whisper-1"
    assert names[-1] == "tiny-whisper"

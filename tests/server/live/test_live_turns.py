"""Tests of live sessions whose turns end by meaning: our own API, OpenAI's and Deepgram's doors, and restarts."""

import asyncio

import pytest
import soundfile
from starlette.datastructures import QueryParams

from pipeline.audio import position
from pipeline.events import TurnEnded
from pipeline.recognition.engines.scripted import ScriptedEngine
from pipeline.recognition.model_set import ModelSet
from pipeline.weights import TURN_ENDS
from pipeline.words import Word
from server.dialects.deepgram.parameters import parse_live
from server.dialects.openai.items import ItemNames, Items
from server.dialects.openai.session_config import TranscriptionConfig
from server.live.models import UNAVAILABLE, LiveModels
from server.live.reporting import starts
from server.model.errors import Refused
from server.model.offers import Offer
from server.model.orders import LiveOptions, Order
from tests.server.realtime_client import COMPLETED
from tests.server.running import SPEECH
from tests.server.session_registries import after
from tests.server.talking import SECOND, Caller, open_talk, silence

ENDED = {"type": "turn.ended", "at": 2.0, "probability": 0.9}
WORD = {"type": "word", "word": "so", "start": 1.0, "end": 2.0}
OFFER = Offer(engine="whisper", model="tiny.en", languages=frozenset({"en"}))
installed = pytest.mark.skipif(not TURN_ENDS.installed, reason="the weights of turn ends are not installed")


def clip(name: str) -> bytes:
    """Return a person's sentence as 16-bit samples."""
    samples, _ = soundfile.read(SPEECH / "human" / f"{name}.flac", dtype="int16")
    return bytes(samples.tobytes())


@installed
async def test_a_finished_sentence_ends_its_turn_and_the_record_says_how(bundled_server):
    me = Caller(bundled_server, bundled_server.new_key())
    record = await me.start(endpointing="semantic", endpointing_ms=5000)
    assert record["warnings"] == [{"code": "ignored_parameter", "param": "endpointing_ms"}]
    assert (record["live"]["endpointing"], record["live"]["eagerness"]) == ("semantic", "auto")
    async with open_talk(record["live"]["ingest_ws"]) as talk:
        await talk.send(clip("LJ001-0013") + silence(1))
        ended = await talk.until("turn.ended")
        assert talk.of("segment")[-1]["end"] == ended["at"]
        assert 2.2 < ended["at"] < 2.6
        assert ended["probability"] > 0.6
        await talk.close()
    assert len(talk.of("turn.ended")) == 1


@pytest.mark.parametrize(("order", "count"), [({}, 2), ({"latency": "accurate"}, 1)])
async def test_a_pause_of_a_second_ends_a_turn_but_not_where_every_word_waits(bundled_server, order, count):
    me = Caller(bundled_server, bundled_server.new_key())
    async with me.speaking(**order) as (record, talk):
        await talk.send(clip("jfk")[: 5 * SECOND])  # and so my fellow americans [1.1 s] ask not
        await talk.close()
    assert len(talk.of("segment")) == count
    assert "ends_at_once" not in record["live"]


async def test_without_the_model_turns_end_by_silence_with_a_warning(me):
    async with me.speaking(endpointing="semantic", eagerness="low") as (record, talk):
        await talk.send(silence(1))
        await talk.close()
    assert [frame["code"] for frame in talk.of("warning")] == [UNAVAILABLE.code]
    assert talk.of("segment")
    assert not talk.of("turn.ended")
    assert [warning["code"] for warning in (await me.job(record["job_id"]))["warnings"]] == [UNAVAILABLE.code]


# --- restarts ---------------------------------------------------------------------------------------------------------


def test_a_turn_that_was_open_at_a_restart_ends_once_with_the_session():
    place, ordered = after(Word("so", position(1), position(2), 0.9)), Order(live=LiveOptions(endpointing="semantic"))

    class NoTurnEnds:
        async def probability(self, _turn: object) -> float:
            raise AssertionError("nobody speaks")

    async def events() -> list[object]:
        models = ModelSet.of(ScriptedEngine())
        live = LiveModels(engine="e", models=models, vad=None, turn_ends=NoTurnEnds())
        session = live.stream(ordered, tenant="acct", starts=starts(place, ordered))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(session.run())
            session.finish()
            return [one.event async for one in session.events()]

    [end] = asyncio.run(events())
    assert end == TurnEnded(position(2), None)


# --- other doors ------------------------------------------------------------------------------------------------------


def test_openais_delay_is_our_latency():
    latencies = {}
    for delay in ("minimal", "low", "medium", "high", "xhigh"):
        asked = {"audio": {"input": {"transcription": {"delay": delay}}}}
        latencies[delay] = TranscriptionConfig().with_changes(asked, OFFER).order().live.latency
    assert latencies == {"minimal": "low", "low": "low", "medium": None, "high": "accurate", "xhigh": "accurate"}
    with pytest.raises(Refused, match="delay"):
        TranscriptionConfig().with_changes({"audio": {"input": {"transcription": {"delay": "long"}}}}, OFFER)


def test_semantic_vad_orders_semantic_ends_with_its_eagerness():
    asked = {"audio": {"input": {"turn_detection": {"type": "semantic_vad", "eagerness": "low"}}}}
    live = TranscriptionConfig().with_changes(asked, OFFER).order().live
    assert (live.endpointing, live.eagerness, live.endpointing_ms) == ("semantic", "low", 1200)
    assert TranscriptionConfig().order().live.endpointing == "silence"


def test_an_item_of_semantic_vad_ends_with_its_turn_and_not_with_a_pause():
    items = Items(ItemNames(), manual=False, semantic=True)
    items.render({"type": "speech.started", "at": 1.0})
    items.render(WORD)
    assert items.render({"type": "speech.ended", "at": 2.1}) == []
    assert items.render({"type": "segment", "end": 2.0, "forced": False}) == []
    told = items.render(ENDED)
    assert (told[0]["type"], told[0]["audio_end_ms"]) == ("input_audio_buffer.speech_stopped", 2000)
    assert (told[-1]["type"], told[-1]["transcript"]) == (COMPLETED, "so")


def test_an_item_without_words_ends_where_that_is_decided():
    items = Items(ItemNames(), manual=False, semantic=True)
    items.render({"type": "speech.started", "at": 1.0})
    told = items.render({"type": "finalized", "at": 3.0})
    assert (told[0]["audio_end_ms"], told[-1]["transcript"]) == (3000, "")


def test_without_the_model_an_item_ends_with_a_pause():
    items = Items(ItemNames(), manual=False, semantic=True)
    items.render({"type": "warning", "code": UNAVAILABLE.code, "message": ""})
    items.render({"type": "speech.started", "at": 1.0})
    assert items.render({"type": "speech.ended", "at": 2.1})[0]["audio_end_ms"] == 2100


def test_deepgrams_clients_may_ask_for_semantic_ends_too():
    live = parse_live(QueryParams("endpointing=semantic&eagerness=high"), OFFER).order.live
    assert (live.endpointing, live.eagerness) == ("semantic", "high")
    with pytest.raises(Refused, match="needs endpointing=semantic"):
        parse_live(QueryParams("endpointing=300&eagerness=high"), OFFER)

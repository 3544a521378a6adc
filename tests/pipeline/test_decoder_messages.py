"""Tests of messages.py: messages between server and decoder survive the way, and broken ones are refused."""

from dataclasses import asdict

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import AudioTooLong, EmptyAudio, InvalidAudio, NoAudioStream, UndecodableAudio
from pipeline.ingest.input_formats import Probe
from pipeline.ingest.messages import (
    HEAD,
    MAX_BYTES,
    Done,
    Failed,
    MalformedMessage,
    Message,
    Opened,
    length_of,
    pack,
    unpack,
)


def pack_and_unpack(message: Message) -> Message:
    data = pack(message)
    kind, length = length_of(data[: HEAD.size])
    assert length == len(data) - HEAD.size
    return unpack(kind, data[HEAD.size :])


def test_messages_arrive_as_they_were_sent():
    for message in (
        Opened(Probe("ogg", "opus", 48000, 2, 12.5, duration_stated=True)),
        Opened(Probe("mp3", "mp3", 44100, 1, None, duration_stated=False)),
        Done(("audio_truncated", "frames_skipped")),
        Done(()),
    ):
        assert pack_and_unpack(message) == message
    samples = np.array([0.5, -1.0, 1e-9], np.float32)
    arrived = pack_and_unpack(samples)
    assert isinstance(arrived, np.ndarray)
    assert np.array_equal(arrived, samples)


@pytest.mark.parametrize("length_s", [-3_600_000.0, -0.001, 0.0, None])
def test_a_length_that_no_recording_has_is_not_known(length_s):
    said = {**asdict(Probe("matroska", "opus", 48000, 2, 12.5, duration_stated=True)), "duration_s": length_s}
    arrived = unpack(b"O", orjson.dumps(said))
    assert isinstance(arrived, Opened)
    assert arrived.probe.duration_s is None
    assert not arrived.probe.duration_stated


@pytest.mark.parametrize("error", [EmptyAudio, InvalidAudio, NoAudioStream, UndecodableAudio])
def test_errors_arrive_with_their_class_and_message(error):
    arrived = pack_and_unpack(Failed(error("why")))
    assert isinstance(arrived, Failed)
    assert (type(arrived.error), str(arrived.error)) == (error, "why")


def test_the_length_error_arrives_with_its_numbers():
    arrived = pack_and_unpack(Failed(AudioTooLong("long", limit_s=30.0, actual_s=31.5)))
    assert isinstance(arrived, Failed)
    assert isinstance(arrived.error, AudioTooLong)
    assert (arrived.error.limit_s, arrived.error.actual_s) == (30.0, 31.5)


@given(head=st.binary(min_size=HEAD.size, max_size=HEAD.size))
def test_a_head_that_promises_too_much_is_garbled(head):
    kind, length = HEAD.unpack(head)
    if kind in (b"O", b"S", b"D", b"F") and length <= MAX_BYTES:
        assert length_of(head) == (kind, length)
    else:
        with pytest.raises(MalformedMessage):
            length_of(head)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(("error", "message", "facts", "limit_s", "format", "codec", "rate", "duration_s")), inner
        )
    ),
)


@given(kind=st.sampled_from((b"O", b"S", b"D", b"F")), payload=st.binary(max_size=60) | JSON.map(orjson.dumps))
def test_whatever_a_broken_decoder_says_is_a_message_or_garbled(kind, payload):
    try:
        message = unpack(kind, payload)
    except MalformedMessage:
        return
    assert isinstance(message, Opened | Done | Failed | np.ndarray)

"""Tests of what `scribewire live` sends and prints."""

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from pipeline.audio import RATE
from pipeline.ingest.pcm import PcmDecoder
from server.commands.live import ENCODING, encode, print_events
from tests.server.storing import in_a_loop


def test_a_quiet_recording_reaches_the_server_as_it_is() -> None:
    sound = np.random.default_rng(7).uniform(-2e-3, 2e-3, RATE).astype(np.float32)
    assert np.array_equal(PcmDecoder(ENCODING, rate=RATE, channels=1).receive(encode(sound)), sound)


async def conversation(*final: tuple[int, int, str]) -> AsyncIterator[dict[str, Any]]:
    """Yield the events of a session in which S1 says four words, with these speakers at the end."""
    for number, word in enumerate(("Is", "it?", "It", "is.")):
        yield {"type": "word", "index": number, "word": word}
        if number % 2:
            yield {"type": "segment", "text": "Is it?" if number == 1 else "It is.", "speaker": "S1"}
    runs = [{"first": first, "last": last, "speaker": speaker} for first, last, speaker in final]
    yield {"type": "speakers.revised", "words": runs, "final": True}
    yield {"type": "job.completed"}


@in_a_loop
async def test_whoever_reads_lines_with_another_speaker_is_given_the_right_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert not await print_events(conversation((0, 3, "S1")))
    assert capsys.readouterr().out == "S1: Is it?\nS1: It is.\n"
    assert await print_events(conversation((0, 1, "S1"), (2, 3, "S2")))
    assert await print_events(conversation((0, 0, "S1"), (1, 1, "S2"), (2, 3, "S1")))

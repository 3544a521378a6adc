"""Tests of isolation.py with damaged files of many kinds."""

import random
from collections.abc import Iterator

import pytest

from pipeline.audio import RATE
from pipeline.errors import (
    AudioTooLong,
    EmptyAudio,
    InvalidAudio,
    NoAudioStream,
    UndecodableAudio,
)
from pipeline.ingest.input_formats import DecodeLimits
from pipeline.ingest.isolation import Isolation
from tests.pipeline.sounds import CLIP, encode_audio, read


@pytest.fixture(scope="module")
def isolation() -> Iterator[Isolation]:
    with Isolation() as isolation:
        yield isolation


KINDS = [
    ("flv", "aac"),
    ("mpegts", "aac"),
    ("w64", "pcm_s16le"),
    ("webm", "libopus"),
    ("ipod", "aac"),
    ("avi", "libmp3lame"),
    ("caf", "alac"),
    ("rm", "ac3"),
]


def damage(data: bytes, chance: random.Random) -> bytes:
    """Change some bytes, most of them in the header, and sometimes cut the end off."""
    broken = bytearray(data)
    for _ in range(chance.choice((1, 3, 10, 100))):
        place = chance.randrange(min(len(broken), chance.choice((64, 400, len(broken)))))
        broken[place] = chance.choice((0, 255, chance.randrange(256)))
    return bytes(broken[: chance.choice((len(broken), chance.randrange(len(broken))))])


@pytest.mark.parametrize(("container", "codec"), KINDS)
def test_a_damaged_file_is_heard_or_refused_and_nothing_else(isolation, tmp_path, container, codec):
    """No damaged file may cause an internal error. When this was written, one in a hundred did."""
    data = encode_audio(read(CLIP)[: 2 * RATE], container, codec, rate=48000)
    chance, path = random.Random(container), tmp_path / "damaged"
    for _ in range(8):
        path.write_bytes(damage(data, chance))
        try:
            with isolation.decoding(path, DecodeLimits(longest_s=60)) as audio:
                assert sum(map(len, audio)) > 0
        except (UndecodableAudio, InvalidAudio, NoAudioStream, AudioTooLong, EmptyAudio):
            continue

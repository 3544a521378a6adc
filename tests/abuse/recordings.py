"""Recordings that only an attacker makes."""

import io
import struct
from fractions import Fraction

import av
import numpy as np

from pipeline.audio import RATE
from tests.pipeline.sounds import encode_audio, tone

DURATION = b"\x44\x89\x88"  # Matroska's element, which holds a double of 8 bytes


def without_a_frame(packets: int) -> bytes:
    """A Matroska file of FLAC whose packets have one byte each, so that no frame of it is ever decoded."""
    file = io.BytesIO()
    with av.open(file, "w", format="matroska") as out:
        sound = out.add_stream("flac", rate=RATE, layout="mono")
        sound.codec_context.open()
        for number in range(packets):
            packet = av.Packet(b"\0")
            packet.stream, packet.time_base = sound, Fraction(1, RATE)
            packet.pts = packet.dts = number * 4096
            out.mux(packet)
    return file.getvalue()


def of_negative_length(stated_s: float) -> bytes:
    """A second of sound in a Matroska file that states another length."""
    audio = encode_audio(tone(1), "matroska", "flac")
    before, found, after = audio.partition(DURATION)
    assert found
    return before + found + struct.pack(">d", stated_s * 1000) + after[8:]


def long_and_unstated(length_s: int) -> bytes:
    """Silence in a Matroska file that states no length, as browsers write it."""
    audio = encode_audio(np.zeros(length_s * RATE, np.float32), "matroska", "flac")
    before, found, after = audio.partition(DURATION)
    assert found
    return before + b"\xec\x89" + bytes(9) + after[8:]  # the element becomes a void one of the same size

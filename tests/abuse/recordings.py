"""Recordings that only an attacker makes."""

import io
from fractions import Fraction

import av

from pipeline.audio import RATE


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

"""Sounds for the tests of pipeline/ingest: the clips of tests/speech in any container and codec."""

import io
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import soundfile

from pipeline.audio import RATE, Samples

SPEECH = Path(__file__).parent.parent / "speech"
CLIPS: list[dict[str, Any]] = json.loads((SPEECH / "manifest.json").read_text())
CLIP = SPEECH / "espeak" / "en_05.flac"


def read(path: Path) -> Samples:
    """Return the samples of a clip, read by another library than the one under test."""
    samples, rate = soundfile.read(path, dtype="float32")
    assert rate == RATE
    return samples


def tone(seconds: float, *, rate: int = RATE, hertz: float = 440.0) -> Samples:
    return (0.5 * np.sin(np.arange(round(seconds * rate)) * (2 * np.pi * hertz / rate))).astype(np.float32)


def encoded(
    samples: Samples,
    container: str,
    codec: str,
    *,
    rate: int = RATE,
    layout: str = "mono",
    bit_rate: int | None = None,
    sample_format: str | None = None,
    start_s: float = 0.0,
    film: bool = False,
) -> bytes:
    """Return *samples* (at RATE) encoded, the same in every channel; with *film* beside a picture track from 0."""
    file = io.BytesIO()
    with av.open(file, "w", format=container) as out:
        picture = out.add_stream("mpeg4", rate=25) if film else None
        sound = out.add_stream(codec, rate=rate, layout=layout, options={"strict": "experimental"})
        if bit_rate is not None:
            sound.bit_rate = bit_rate
        if sample_format is not None:
            sound.codec_context.format = sample_format
        if picture is not None:
            out.mux(_pictures(picture, start_s + len(samples) / RATE))
        for at in range(0, len(samples), RATE):
            frame = av.AudioFrame.from_ndarray(samples[np.newaxis, at : at + RATE], format="flt", layout="mono")
            frame.sample_rate, frame.time_base = RATE, Fraction(1, RATE)
            frame.pts = at + round(start_s * RATE)
            out.mux(sound.encode(frame))
        out.mux(sound.encode(None))
    return file.getvalue()


def film(seconds: float) -> bytes:
    """Return an MP4 file with pictures and no sound."""
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as out:
        out.mux(_pictures(out.add_stream("mpeg4", rate=25), seconds))
    return file.getvalue()


def _pictures(stream: Any, seconds: float) -> list[av.Packet]:
    stream.width, stream.height, stream.pix_fmt = 64, 64, "yuv420p"
    packets = []
    for number in range(round(seconds * 25)):
        frame = av.VideoFrame(64, 64, "yuv420p")
        for plane in frame.planes:
            plane.update(bytes([number % 256]) * plane.buffer_size)
        frame.pts, frame.time_base = number, Fraction(1, 25)
        packets += stream.encode(frame)
    return packets + stream.encode(None)

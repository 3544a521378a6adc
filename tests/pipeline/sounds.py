"""Sounds for the tests of pipeline/ingest: the clips of tests/speech in any container and codec."""

import io
import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import av
import numpy as np
import pytest
import soundfile
from av.stream import Disposition

from pipeline.audio import RATE, Samples
from pipeline.ingest.speech import DecodeJob, Packed, PackingOptions, SpeechPacker
from pipeline.ingest.vad import Vad

SPEECH = Path(__file__).parent.parent / "speech"
CLIPS: list[dict[str, Any]] = json.loads((SPEECH / "manifest.json").read_text())
CLIP = SPEECH / "espeak" / "en_05.flac"


Made: TypeAlias = tuple[str, str, int, str, int]

LOSSLESS = [  # container, codec, and the sample format if the encoder's own choice is not exact
    ("wav", "pcm_s16le", None),
    ("wav", "pcm_s24le", None),
    ("wav", "pcm_f32le", None),
    ("flac", "flac", None),
    ("ogg", "flac", None),
    ("ipod", "alac", None),
    ("mov", "pcm_s16le", None),
    ("matroska", "pcm_s16le", None),
    ("aiff", "pcm_s16be", None),
    ("au", "pcm_s16be", None),
    ("avi", "pcm_s16le", None),
    ("caf", "pcm_s16le", None),
    ("tta", "tta", "s16"),
    ("w64", "pcm_s16le", None),
    ("wv", "wavpack", "s16p"),
]

LOSSY = [  # container, codec, rate, layout, ms of the encoder's delay and padding if the container does not record it
    ("mp3", "libmp3lame", 44100, "stereo", 0),
    ("mp2", "mp2", 48000, "mono", 60),
    ("wav", "pcm_mulaw", 8000, "mono", 0),
    ("wav", "pcm_alaw", 8000, "stereo", 0),
    ("wav", "pcm_u8", 11025, "mono", 0),
    ("wav", "adpcm_ms", 22050, "mono", 60),
    ("wav", "adpcm_ima_wav", 22050, "mono", 60),
    ("wav", "g722", 16000, "mono", 0),
    ("ipod", "aac", 44100, "stereo", 0),
    ("mp4", "aac", 16000, "mono", 0),
    ("3gp", "aac", 22050, "mono", 0),
    ("3g2", "libopencore_amrnb", 8000, "mono", 0),
    ("adts", "aac", 44100, "mono", 60),
    ("latm", "aac", 48000, "mono", 60),
    ("ogg", "libopus", 48000, "stereo", 0),
    ("ogg", "vorbis", 44100, "stereo", 0),
    ("webm", "libopus", 48000, "mono", 0),
    ("webm", "vorbis", 48000, "stereo", 0),
    ("matroska", "aac", 48000, "mono", 0),
    ("ac3", "ac3", 48000, "5.1", 0),
    ("eac3", "eac3", 44100, "stereo", 0),
    ("amr", "libopencore_amrnb", 8000, "mono", 0),
    ("asf", "wmav2", 44100, "stereo", 50),
    ("asf", "wmav1", 44100, "stereo", 50),
    ("avi", "libmp3lame", 44100, "mono", 60),
    ("caf", "alac", 44100, "mono", 60),
    ("flv", "libmp3lame", 44100, "mono", 60),
    ("flv", "aac", 44100, "mono", 60),
    ("mpeg", "mp2", 48000, "mono", 0),
    ("mpegts", "aac", 48000, "mono", 60),
    ("mpegts", "libopus", 48000, "mono", 60),
    ("rm", "real_144", 8000, "mono", 0),
    ("rm", "ac3", 48000, "mono", 0),
    ("voc", "pcm_u8", 8000, "mono", 0),
]

FFMPEG_ALONE = [  # suffix, how the ffmpeg program writes what PyAV has no encoder for
    ("dts", "-strict -2 -c:a dca -ar 48000"),
    ("gsm", "-c:a libgsm -ar 8000"),
    ("ogg", "-c:a libspeex -ar 16000"),
    ("mxf", "-f lavfi -i testsrc=d=11.5:s=64x64:r=25 -map 1:v -map 0:a -c:v mpeg2video -c:a pcm_s16le -ar 48000"),
    ("mpg", "-f lavfi -i testsrc=d=11.5:s=64x64:r=25 -map 1:v -map 0:a -c:v mpeg2video -c:a mp2 -ar 48000"),
]


def read(path: Path) -> Samples:
    """Return the samples of a clip, read by another library than the one under test."""
    samples, rate = soundfile.read(path, dtype="float32")
    assert rate == RATE
    return samples


def envelope(samples: Samples) -> Samples:
    """Return the loudness in steps of 10 ms."""
    steps = len(samples) // 160
    return np.sqrt(np.mean(np.square(samples[: steps * 160]).reshape(steps, 160), axis=1))


def likeness(samples: Samples, original: Samples, lag: int) -> float:
    """Return the correlation of both envelopes if the first is *lag* steps of 10 ms late."""
    one, other = envelope(samples)[max(lag, 0) :], envelope(original)[max(-lag, 0) :]
    length = min(len(one), len(other))
    return float(np.corrcoef(one[:length], other[:length])[0, 1])


def codes(notes: Iterable[str]) -> tuple[str, ...]:
    """Return the codes of a recording's notes."""
    return tuple(note.partition(": ")[0] for note in notes)


def tone(seconds: float, *, rate: int = RATE, hertz: float = 440.0) -> Samples:
    return (0.5 * np.sin(np.arange(round(seconds * rate)) * (2 * np.pi * hertz / rate))).astype(np.float32)


def encode_audio(
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
    film_s: float = 0.0,
) -> bytes:
    """Return *samples* (at RATE) as a file, the same in every channel. With *film* it has a picture track from 0 too.

    The pictures end with the sound, or after *film_s* if that is later.
    """
    file = io.BytesIO()
    with av.open(file, "w", format=container) as out:
        picture = out.add_stream("mpeg4", rate=25) if film else None
        sound = out.add_stream(codec, rate=rate, layout=layout, options={"strict": "experimental"})
        if bit_rate is not None:
            sound.bit_rate = bit_rate
        if sample_format is not None:
            sound.codec_context.format = sample_format
        if picture is not None:
            out.mux(_pictures(picture, max(film_s, start_s + len(samples) / RATE)))
        for at in range(0, len(samples), RATE):
            frame = av.AudioFrame.from_ndarray(samples[np.newaxis, at : at + RATE], format="flt", layout="mono")
            frame.sample_rate, frame.time_base = RATE, Fraction(1, RATE)
            frame.pts = at + round(start_s * RATE)
            out.mux(sound.encode(frame))
        out.mux(sound.encode(None))
    return file.getvalue()


@dataclass(frozen=True)
class Sound:
    """A track of a file: samples at RATE, and how they are written."""

    samples: Samples
    flags: int = 0
    title: str = ""
    codec: str = "aac"
    rate: int = 48000
    broken: bool = False
    start_s: float = 0.0
    layout: str = "mono"


def tracks_in(container: str, *sounds: Sound, options: Mapping[str, str] = MappingProxyType({})) -> bytes:
    """Return a file with these tracks, in their order, written with *options* of FFmpeg."""
    file = io.BytesIO()
    with av.open(file, "w", format=container, options=dict(options)) as out:
        strict = {"strict": "experimental"}
        streams = [
            out.add_stream(sound.codec, rate=sound.rate, layout=sound.layout, options=strict) for sound in sounds
        ]
        for stream, sound in zip(streams, sounds, strict=True):
            stream.disposition = Disposition(sound.flags)
            stream.metadata["title"] = sound.title
        out.start_encoding()
        packets = []
        for stream, sound in zip(streams, sounds, strict=True):
            encoded = []
            for at in range(0, len(sound.samples), RATE // 4):
                piece = sound.samples[np.newaxis, at : at + RATE // 4]
                frame = av.AudioFrame.from_ndarray(piece, format="flt", layout="mono")
                frame.sample_rate, frame.time_base = RATE, Fraction(1, RATE)
                frame.pts = at + round(sound.start_s * RATE)
                encoded += stream.encode(frame)
            packets += [
                (float(packet.pts * packet.time_base), _broken(packet) if sound.broken else packet)
                for packet in [*encoded, *stream.encode(None)]
            ]
        for _, packet in sorted(packets, key=lambda pair: pair[0]):
            out.mux(packet)
    return file.getvalue()


def _broken(packet: av.Packet) -> av.Packet:
    damaged = av.Packet(b"\0")
    damaged.stream, damaged.pts, damaged.dts = packet.stream, packet.pts, packet.dts
    damaged.time_base, damaged.duration = packet.time_base, packet.duration
    return damaged


def encode_with_ffmpeg(folder: Path, suffix: str, how: str) -> bytes:
    """CLIP as the ffmpeg program writes it. Skips the test where the program is not installed."""
    program = shutil.which("ffmpeg")
    if program is None:
        pytest.skip("the ffmpeg program is not installed, and PyAV has no encoder for this")
    made = folder / f"clip.{suffix}"
    subprocess.run([program, "-v", "error", "-i", CLIP, *how.split(), made], check=True)
    return made.read_bytes()


def one_byte_packets(count: int) -> bytes:
    """A Matroska file of FLAC whose packets have one byte each. FFmpeg decodes no frame of it, and raises no error."""
    file = io.BytesIO()
    with av.open(file, "w", format="matroska") as out:
        sound = out.add_stream("flac", rate=RATE, layout="mono")
        sound.codec_context.open()
        for number in range(count):
            packet = av.Packet(b"\0")
            packet.stream, packet.time_base = sound, Fraction(1, RATE)
            packet.pts = packet.dts = number * 4096
            out.mux(packet)
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


def packed(pieces: Iterable[Samples], detector: Vad, options: PackingOptions | None = None) -> list[Packed]:
    """Return the decode jobs of a recording, and between them how far it is heard."""
    packer = SpeechPacker(detector.stream(), options)
    return [*(item for samples in pieces for item in packer.pack(samples)), *packer.flush()]


def jobs_of(samples: Samples, detector: Vad, options: PackingOptions | None = None) -> list[DecodeJob]:
    return [item for item in packed([samples], detector, options) if isinstance(item, DecodeJob)]

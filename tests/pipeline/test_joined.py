"""Tests of files that hold more or less than one whole recording: all of it is heard or named."""

import io
import os
import random
import shutil
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from itertools import islice

import av
import numpy as np
import pytest

from pipeline.audio import RATE, Samples, position
from pipeline.errors import AudioTooLong, InvalidAudio
from pipeline.ingest.decode import recording
from pipeline.ingest.input_formats import DecodeLimits
from pipeline.ingest.notes import FILLED, SHIFTED, TRUNCATED, UNHEARD
from pipeline.ingest.source import ByteSource
from tests.pipeline.sounds import CLIP, LOSSLESS, LOSSY, codes, encode_audio, likeness, read, tone

SEEKING = {"ipod", "mov", "mp4", "3gp", "3g2", "caf"}  # cannot be read from a pipe as they are made here
KINDS = [
    (container, codec, live)
    for container, codec, *_ in (*LOSSLESS, *LOSSY)
    for live in (False, True)
    if container != "mpeg" and not (live and container in SEEKING)
]
RATES = {
    "libopus": 48000,
    "g722": 16000,
    "libopencore_amrnb": 8000,
    "real_144": 8000,
    "ac3": 48000,
    "eac3": 48000,
    "wmav2": 44100,
}
AFTER = {"aac": 22050, "libmp3lame": 22050, "pcm_s16le": 8000, "flac": 44100, "vorbis": 48000, "alac": 22050}


@pytest.fixture(scope="module")
def clip() -> Samples:
    return read(CLIP)[: position(3)]


def encode(sound: Samples, container: str, codec: str, *, rate: int | None = None, layout: str = "mono") -> bytes:
    sample_format = {"tta": "s16", "wavpack": "s16p"}.get(codec)
    rate = rate or RATES.get(codec, 44100 if codec.startswith(("wma", "vorbis", "adpcm", "libmp3")) else RATE)
    layout = "stereo" if codec == "vorbis" else layout  # the encoder knows no other
    bit_rate = 128_000 if codec.startswith("wma") else None
    return encode_audio(
        sound, container, codec, rate=rate, layout=layout, bit_rate=bit_rate, sample_format=sample_format
    )


@contextmanager
def source_of(data: bytes, *, live: bool) -> Iterator[ByteSource]:
    """Give the bytes as a file, or as a pipe into which they are written in pieces."""
    if not live:
        yield io.BytesIO(data)
        return
    inner, outer = os.pipe()

    def write() -> None:
        with suppress(BrokenPipeError), os.fdopen(outer, "wb", buffering=0) as pipe:
            for at in range(0, len(data), 3000):
                pipe.write(data[at : at + 3000])

    writer = threading.Thread(target=write)
    writer.start()
    with os.fdopen(inner, "rb", buffering=0) as pipe:
        yield pipe
    writer.join()


def hear(data: bytes, *, live: bool = False) -> tuple[Samples, tuple[str, ...]]:
    with source_of(data, live=live) as source, recording(source, DecodeLimits(), live=live) as audio:
        return np.concatenate(list(audio)), audio.notes


def assert_both(samples: Samples, clip: Samples, extra_s: float = 0.2) -> None:
    """Assert that *samples* are the clip backwards and then the clip."""
    assert len(samples) == pytest.approx(2 * len(clip), abs=position(extra_s))
    lags = range(-20, 21)
    assert max(likeness(samples[: len(clip)], clip[::-1], lag) for lag in lags) > 0.9
    assert max(likeness(samples[-len(clip) :], clip, lag) for lag in lags) > 0.9


@pytest.mark.parametrize(("container", "codec", "live"), KINDS)
def test_recordings_joined_to_one_file_are_heard_one_after_the_other(clip, container, codec, *, live):
    """The second has another rate, as far as the codec has others."""
    first = encode(clip[::-1].copy(), container, codec)
    samples, notes = hear(first + encode(clip, container, codec, rate=AFTER.get(codec)), live=live)
    assert_both(samples, clip)
    assert notes == ()


FORMS = {
    "wav": ("wav", "pcm_s16le"),
    "m4a": ("ipod", "aac"),
    "flac": ("flac", "flac"),
    "opus": ("ogg", "libopus"),
    "webm": ("webm", "libopus"),
    "mp3": ("mp3", "libmp3lame"),
}
APE = b"".join(
    b"APETAGEX" + struct.pack("<IIII", 2000, 532, 1, 1 << 31 | head << 29) + bytes(8) + b"x" * 500 * head
    for head in (1, 0)
)
SILENT = {"nothing": b"", "zeros": bytes(5001), "an ID3v1 tag": b"TAG" + b"a" * 125, "an APE tag": APE}


@pytest.mark.parametrize("first", FORMS)
@pytest.mark.parametrize("second", [form for form in FORMS if form != "mp3"])
def test_the_second_recording_may_be_of_another_kind(clip, first, second):
    """An MP3 file has no header that could not stand in other audio by chance."""
    samples, notes = hear(encode(clip[::-1].copy(), *FORMS[first]) + encode(clip, *FORMS[second], layout="stereo"))
    assert_both(samples, clip, 0.3)
    assert codes(notes) == ()


@pytest.mark.parametrize("between", SILENT)
@pytest.mark.parametrize("first", ["wav", "m4a", "flac", "mp3"])
def test_padding_and_tags_behind_a_recording_are_no_loss(clip, first, between):
    whole = encode(clip, *FORMS[first]) + SILENT[between]
    samples, notes = hear(whole)
    assert len(samples) == pytest.approx(len(clip), abs=position(0.1))
    assert notes == ()
    both, notes = hear(whole + encode(clip, "wav", "pcm_s16le"))
    assert len(both) == pytest.approx(2 * len(clip), abs=position(0.2))
    assert notes == ()


@pytest.mark.parametrize("first", ["wav", "m4a"])
def test_bytes_that_are_no_audio_are_named(clip, first):
    letter = b"Dear Sir, " * 2000
    for behind in (b"", encode(clip, "wav", "pcm_s16le")):
        samples, notes = hear(encode(clip, *FORMS[first]) + letter + behind)
        assert len(samples) == pytest.approx((1 + bool(behind)) * len(clip), abs=position(0.1))
        assert notes == (
            f"{UNHEARD}: 20000 bytes of the file could not be read. They come after the end of its audio.",
        )


@pytest.mark.parametrize("first", ["wav", "flac", "opus", "webm"])
def test_a_first_recording_that_was_cut_off_hides_no_second_one(clip, first):
    cut = encode(clip[::-1].copy(), *FORMS[first])
    samples, notes = hear(cut[: len(cut) // 2] + encode(clip, *FORMS[first]))
    assert position(3.9) < len(samples) < position(5)
    assert likeness(samples[-len(clip) :], clip, 0) > 0.9
    assert first == "opus" or codes(notes) == (TRUNCATED,)


def test_what_cannot_be_opened_is_named_and_what_follows_is_heard(clip):
    whole = encode(clip, "ipod", "aac")
    without_index = whole[: whole.index(b"moov") - 4]
    samples, notes = hear(without_index + whole)
    assert len(samples) == pytest.approx(len(clip), abs=position(0.1))
    why = "The file is broken or cut off before its first audio frame."
    assert notes == (f"{UNHEARD}: {len(without_index)} bytes of the file could not be read. {why}",)
    with pytest.raises(InvalidAudio):
        hear(without_index + without_index)


@pytest.mark.parametrize("stated", [10**9, 2 * 10**9, 1 << 30, (1 << 31) - 1, 5 * 10**8 + 36, 0, (1 << 32) - 1])
def test_a_size_that_stands_for_an_unknown_one_is_not_believed(clip, stated):
    whole = encode(clip, "wav", "pcm_s16le")
    at = whole.index(b"data")
    sizeless = whole[:4] + struct.pack("<I", stated) + whole[8 : at + 4] + struct.pack("<I", stated) + whole[at + 8 :]
    for live in (False, True):
        samples, notes = hear(sizeless, live=live)
        assert (len(samples), notes) == (len(clip), ())
        samples, notes = hear(sizeless * 3, live=live)
        assert (len(samples), notes) == (3 * len(clip), ())
    assert codes(hear(whole[:-9000])[1]) == (TRUNCATED,)


def with_a_gap(clip: Samples, seconds: float, *, states_length: bool) -> bytes:
    """Return the clip as WebM, whose time stamps jump by *seconds* in its middle."""
    file = io.BytesIO()
    whole = encode(clip, "webm", "libopus")
    options = {} if states_length else {"live": "1"}
    with av.open(io.BytesIO(whole)) as source, av.open(file, "w", format="webm", options=options) as out:
        stream = out.add_stream_from_template(source.streams.audio[0])
        for packet in source.demux(audio=0):
            if packet.dts is not None and packet.pts is not None:
                late = round(seconds / packet.time_base) if packet.pts * packet.time_base > Fraction(3, 2) else 0
                packet.pts, packet.dts, packet.stream = packet.pts + late, packet.dts + late, stream
                out.mux(packet)
    return file.getvalue()


def test_a_long_gap_is_silence_if_the_file_states_its_time_and_else_it_is_named(clip):
    samples, notes = hear(with_a_gap(clip, 700, states_length=True))
    assert len(samples) == pytest.approx(len(clip) + position(700), abs=position(0.1))
    assert codes(notes) == (FILLED,)
    samples, notes = hear(with_a_gap(clip, 700, states_length=False))
    assert len(samples) == pytest.approx(len(clip), abs=position(0.1))
    assert codes(notes) == (SHIFTED,)
    assert "700.0 s" in notes[0]


def test_a_gap_of_any_length_takes_no_more_than_the_longest_recording(clip):
    """A few kilobytes may claim days."""
    data = with_a_gap(clip, 1_000_000, states_length=True)
    with recording(io.BytesIO(data), DecodeLimits(longest_s=60)) as audio:
        samples = iter(audio)
        assert sum(map(len, islice(samples, 61))) <= 61 * RATE
        with pytest.raises(AudioTooLong):
            next(samples)


@pytest.mark.parametrize("rate", [RATE, 48000])
@pytest.mark.parametrize("decibels", [6, 20, 30])
def test_floats_above_full_scale_are_scaled_down(rate, decibels):
    loud = tone(2.0, rate=rate) * 2 * 10 ** (decibels / 20)
    head = struct.pack("<4sIHHIIHH4sI", b"fmt ", 16, 3, 1, rate, rate * 4, 4, 32, b"data", loud.nbytes)
    samples, _ = hear(b"RIFF" + struct.pack("<I", 4 + len(head) + loud.nbytes) + b"WAVE" + head + loud.tobytes())
    second, plain = samples[RATE // 2 : -RATE // 4], tone(2.0)[RATE // 2 : -RATE // 4]
    assert np.abs(samples).max() <= 1.0
    assert np.corrcoef(second, plain)[0, 1] > 0.999  # clipped by 20 dB it would be 0.90
    quiet = tone(1.0)
    samples, _ = hear(encode(quiet, "wav", "pcm_f32le"))
    assert np.abs(samples - quiet).max() < 1e-6


@pytest.mark.parametrize("sold", [b"drms", b"aavd"])
def test_a_file_that_a_shop_sold_is_refused_as_encrypted(clip, sold):
    with pytest.raises(InvalidAudio, match="is encrypted"):
        hear(encode(clip, "ipod", "aac").replace(b"mp4a", sold, 1))


def test_quicktime_files_without_a_file_type_are_heard_one_after_the_other(clip):
    first, second = encode(clip[::-1].copy(), "mov", "pcm_s16le"), encode(clip, "mov", "pcm_s16le", rate=8000)
    samples, notes = hear(b"".join(one[one.index(b"wide") - 4 :] for one in (first, second)))
    assert_both(samples, clip)
    assert notes == ()


def test_an_encrypted_file_is_refused_as_encrypted(clip):
    file = io.BytesIO()
    key = {"encryption_scheme": "cenc-aes-ctr", "encryption_key": "76a6c65c5ea762046bd749a2e632ccbb"}
    options = {**key, "encryption_kid": "a7e61c373e219033c21091fa607bf3b8"}
    with av.open(file, "w", format="mp4", options=options) as out:
        sound = out.add_stream("aac", rate=RATE, layout="mono")
        frame = av.AudioFrame.from_ndarray(clip[np.newaxis, :RATE], format="flt", layout="mono")
        frame.sample_rate = RATE
        out.mux(sound.encode(frame))
        out.mux(sound.encode(None))
    with pytest.raises(InvalidAudio, match="is encrypted"):
        hear(file.getvalue())


def mixture(clip: Samples, chance: random.Random) -> tuple[bytes, float]:
    """Return recordings, damaged or not, with bytes between them, and the seconds of those that are whole."""
    data, whole_s = b"", 0.0
    for form in chance.choices([*FORMS], k=chance.randint(1, 4)):
        sound = clip[: position(chance.uniform(1, 3))]
        part = bytearray(encode(sound, *FORMS[form], layout=chance.choice(("mono", "stereo"))))
        damage = chance.choice(("none", "none", "cut", "hole", "letters"))
        if damage == "cut":
            del part[chance.randrange(len(part) // 3, len(part)) :]
        elif damage == "hole":
            at = chance.randrange(len(part) // 3, len(part) - 2000)
            part[at : at + 2000] = bytes(2000)
        elif damage == "letters":
            part += b"Dear Sir, " * chance.randint(100, 3000)
        whole_s += len(sound) / RATE if damage in ("none", "letters") else 0.0
        data += part + chance.choice((b"", *SILENT.values()))
    return data, whole_s


@pytest.mark.parametrize("seed", range(24))
def test_whatever_is_joined_cut_and_damaged_is_heard_or_named(clip, tmp_path, seed):
    """Everything that is whole, and all that the ffmpeg program finds."""
    data, whole_s = mixture(clip, random.Random(seed))
    (tmp_path / "mixture").write_bytes(data)
    try:
        samples, notes = hear(data)
    except InvalidAudio:
        samples, notes = np.zeros(0, np.float32), ("refused",)
    assert len(samples) / RATE > whole_s - 0.2 or UNHEARD in codes(notes) or notes == ("refused",)
    if (program := shutil.which("ffmpeg")) is not None:
        asked = [program, "-v", "quiet", "-i", tmp_path / "mixture", "-ac", "1", "-ar", f"{RATE}", "-f", "s16le", "-"]
        found = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, check=False).stdout
        assert len(samples) > len(found) // 2 - position(0.3) or notes


def riff(form: bytes, fmt: bytes, *chunks: tuple[bytes, bytes]) -> bytes:
    """Return a WAV file of these chunks, little-endian or as RIFX."""
    order = ">" if form == b"RIFX" else "<"
    parts = [(b"fmt ", fmt), *chunks]
    body = b"".join(name + struct.pack(f"{order}I", len(data)) + data + bytes(len(data) % 2) for name, data in parts)
    return form + struct.pack(f"{order}I", 4 + len(body)) + b"WAVE" + body


SAMPLES = {  # numpy's kind of sample, the code of WAV
    "<i2": (1, 16),
    "<i4": (1, 32),
    "<f4": (3, 32),
    "<f8": (3, 64),
    "u1": (1, 8),
}


@pytest.mark.parametrize("kind", SAMPLES)
@pytest.mark.parametrize("channels", [1, 6])
def test_a_big_endian_wav_file_is_heard(clip, kind, channels):
    code, bits = SAMPLES[kind]
    scale = {"<i2": 2**15 - 1, "<i4": 2**31 - 128, "u1": 127}.get(kind, 1.0)
    values = (np.repeat(clip, channels) * scale + (128 if kind == "u1" else 0)).astype(kind.replace("<", ">"))
    frame = channels * bits // 8
    fmt = struct.pack(">HHIIHH", code, channels, RATE, RATE * frame, frame, bits)
    data = riff(b"RIFX", fmt, (b"data", values.tobytes()))
    for live in (False, True):
        samples, notes = hear(data, live=live)
        assert np.abs(samples - clip).max() < (0.02 if kind == "u1" else 1e-3)
        assert notes == ()
    assert len(hear(data + encode(clip, "wav", "pcm_s16le") + data)[0]) == 3 * len(clip)
    assert codes(hear(data[:-9000])[1]) == (TRUNCATED,)


def test_a_big_endian_wav_file_of_a_codec_that_has_an_order_of_its_own_is_refused():
    fmt = struct.pack(">HHIIHHHH", 0x11, 1, RATE, RATE // 2, 256, 4, 2, 505)
    with pytest.raises(InvalidAudio):
        hear(riff(b"RIFX", fmt, (b"data", bytes(25600))))


@pytest.mark.parametrize("form", [b"RIFF", b"RIFX"])
@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("live", [False, True])
def test_all_chunks_of_sound_of_a_wav_file_are_heard(clip, form, count, *, live):
    """As recorders write them that were paused, with marks between them."""
    order = ">" if form == b"RIFX" else "<"
    pieces = np.array_split((clip * 32767).astype(f"{order}i2"), count)
    chunks = [one for piece in pieces for one in ((b"data", piece.tobytes()), (b"cue ", bytes(28)), (b"LIST", b"abc"))]
    data = riff(form, struct.pack(f"{order}HHIIHH", 1, 1, RATE, 2 * RATE, 2, 16), *chunks)
    samples, notes = hear(data, live=live)
    assert len(samples) == len(clip)
    assert np.abs(samples - clip).max() < 1e-3
    assert notes == ()
    samples, notes = hear(data + encode(clip, "wav", "pcm_s16le"), live=live)
    assert len(samples) == 2 * len(clip)


def test_samples_of_24_bits_that_take_32_are_heard(clip):
    """As Windows records them (WAVE_FORMAT_EXTENSIBLE)."""
    kind = struct.pack("<HHIIHH", 0xFFFE, 1, RATE, 4 * RATE, 4, 32)
    pcm = b"\1\0\0\0\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71"
    for valid in (24, 32):
        fmt = kind + struct.pack("<HHI", 22, valid, 4) + pcm
        samples, notes = hear(riff(b"RIFF", fmt, (b"data", (clip * (2**31 - 256)).astype("<i4").tobytes())))
        assert len(samples) == len(clip), valid
        assert np.abs(samples - clip).max() < 1e-3
        assert notes == ()

"""Tests of surround sound: the centre is heard while somebody speaks there, and everything otherwise."""

import io
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
import soundfile

from pipeline.audio import RATE, WINDOW, Samples, position
from pipeline.ingest.input_formats import DecodeLimits
from pipeline.ingest.isolation import Isolation
from pipeline.ingest.mixing import FocusMix
from pipeline.ingest.track_choice import chosen_track
from pipeline.ingest.vad import Vad
from tests.pipeline.sounds import SPEECH, likeness, read

VOICE = read(SPEECH / "human" / "jfk.flac")
BED = np.asarray(np.random.default_rng(1).standard_normal(len(VOICE)) * 0.2, np.float32)


def surround(layout: str, sounds: Mapping[str, Samples], *, container: str = "matroska", codec: str = "flac") -> bytes:
    """Return a recording with these *sounds* on the channels of these names, and nothing on the others."""
    names = [channel.name for channel in av.AudioLayout(layout).channels]
    sound = np.stack([sounds.get(name, 0 * VOICE) for name in names])
    file = io.BytesIO()
    with av.open(file, "w", format=container) as out:
        stream = out.add_stream(codec, rate=48000 if codec == "ac3" else RATE, layout=layout)
        for at in range(0, sound.shape[1], RATE):
            piece = np.ascontiguousarray(sound[:, at : at + RATE].T).reshape(1, -1)
            frame = av.AudioFrame.from_ndarray(piece, format="flt", layout=layout)
            frame.sample_rate, frame.time_base, frame.pts = RATE, Fraction(1, RATE), at
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return file.getvalue()


def hear(path: Path, data: bytes) -> Samples:
    path.write_bytes(data)
    with Isolation() as isolation, chosen_track(isolation, path, DecodeLimits(), Vad()) as recording:
        return np.concatenate(list(recording.samples))


def share_of(sound: Samples, heard: Samples) -> float:
    """Return how much of what is heard is *sound*: the correlation."""
    length = min(len(sound), len(heard))
    return float(np.corrcoef(sound[:length], heard[:length])[0, 1])


@pytest.mark.parametrize(
    ("layout", "codec"), [("5.1", "flac"), ("5.1(side)", "ac3"), ("7.1", "flac"), ("3.0", "flac"), ("5.0", "flac")]
)
def test_a_voice_in_the_centre_is_heard_without_what_is_around_it(layout, codec, tmp_path):
    around = dict.fromkeys(("FL", "FR", "BL", "BR", "SL", "SR"), BED)
    container = "ac3" if codec == "ac3" else "matroska"
    samples = hear(tmp_path / "film", surround(layout, {**around, "FC": VOICE}, container=container, codec=codec))
    assert len(samples) == pytest.approx(len(VOICE), abs=position(0.1))
    assert max(likeness(samples, VOICE, lag) for lag in range(-3, 4)) > 0.88


def test_a_voice_from_aside_is_heard_in_the_mix(tmp_path):
    samples = hear(tmp_path / "film", surround("5.1", {"FL": VOICE, "FC": 0.001 * BED}))
    assert share_of(VOICE, samples) > 0.99
    first, second = VOICE[: position(5)], VOICE[position(5.3) :]
    centre, aside = 0 * VOICE, 0 * VOICE
    centre[: len(first)], aside[-len(second) :] = first, second
    both = hear(tmp_path / "film", surround("5.1", {"FR": aside, "FC": centre}))
    assert share_of(VOICE, np.sign(both) * np.abs(both) ** 0.5) > 0.7
    assert np.abs(both[-len(second) :]).max() > 0.02


def test_a_voice_that_the_mix_drowns_is_heard_from_the_channel_where_it_is(tmp_path):
    names = ("FL", "FC", "BL", "BR", "SL", "SR")
    loud = {name: np.roll(BED, 5000 * number) * 2 for number, name in enumerate(names)}
    samples = hear(tmp_path / "film", surround("5.1", {**loud, "FR": VOICE}))
    assert likeness(samples, VOICE, 0) > 0.88


@pytest.mark.parametrize("length_s", [11, 150])
def test_a_voice_beside_a_louder_channel_of_stereo_is_heard_alone(length_s, tmp_path):
    voice = np.concatenate((np.zeros(position(length_s) - len(VOICE), np.float32), 0.2 * VOICE))
    beside = np.asarray(np.random.default_rng(2).standard_normal(len(voice)) * 0.2, np.float32)
    path = tmp_path / "camera.wav"
    soundfile.write(path, np.stack((beside, voice), axis=1), RATE)
    samples = hear(path, path.read_bytes())
    assert len(samples) == len(voice)
    spoken = zip(np.split(samples[-len(VOICE) :], 11), np.split(VOICE, 11), strict=True)
    assert sum(share_of(said, part) > 0.9 for part, said in spoken) >= 5  # others hold pauses, where both are mixed


@pytest.mark.parametrize("layout", ["stereo", "quad", "6 channels"])
def test_channels_without_a_centre_are_mixed_as_before(layout, tmp_path):
    channels = av.AudioLayout(layout).nb_channels
    path = tmp_path / "mix.wav"
    soundfile.write(path, np.stack([VOICE * (n < 2) for n in range(channels)], axis=1), RATE)
    with Isolation() as isolation:
        with chosen_track(isolation, path, DecodeLimits(), Vad()) as usual:
            mixed = np.concatenate(list(usual.samples))
            assert usual.focus is None
        with isolation.decoding(path, DecodeLimits()) as plain:
            assert np.abs(mixed - np.concatenate(list(plain))).max() < 1e-6


def test_the_pieces_make_no_difference_and_no_sample_is_lost():
    def detect(windows: np.ndarray) -> list[float]:
        return [float(np.abs(window).max() > 0.5) for window in windows]

    sound = np.stack((np.full(20 * WINDOW + 100, 0.2), np.zeros(20 * WINDOW + 100)), axis=1).astype(np.float32)
    sound[12 * WINDOW : 13 * WINDOW, 1] = 1.0
    whole = None
    for piece in (len(sound), 100, 777, WINDOW):
        mix = FocusMix(detect, 2, 1)
        pieces = [mix.add(sound[at : at + piece]) for at in range(0, len(sound), piece)]
        made = np.concatenate([*pieces, mix.flush()])
        whole = made if whole is None else whole
        assert np.array_equal(made, whole)
    assert len(whole) == len(sound)
    assert np.allclose(whole[: 4 * WINDOW], 0.1)  # the mix, until a quarter of a second before speech
    assert np.allclose(whole[6 * WINDOW : 12 * WINDOW], 0.0)  # the centre
    assert np.allclose(whole[12 * WINDOW + 1 : 13 * WINDOW], 1.0)

"""Tests of recordings with several channels: every input is heard, alone or among others, and what is said about it."""

import io
import random
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import soundfile

from pipeline.audio import RATE, WINDOW, Samples, Windows, position
from pipeline.ingest.input_formats import DecodeLimits
from pipeline.ingest.isolation import Isolation
from pipeline.ingest.mixing import SharedGain
from pipeline.ingest.notes import TWO_TALKS
from pipeline.ingest.stereo import TwoChannels
from pipeline.ingest.track_choice import chosen_track, inspect
from pipeline.ingest.vad import Vad
from tests.pipeline.sounds import SPEECH, codes, jobs_of, likeness, read, tone

VOICE = read(SPEECH / "human" / "jfk.flac")
OTHER = np.resize(read(SPEECH / "human" / "two_cities.flac"), len(VOICE))
CHANCE = np.random.default_rng(5)


def hiss(level: float = 1e-3, length: int = len(VOICE)) -> Samples:
    return np.asarray(CHANCE.standard_normal(length) * level, np.float32)


def time_code(length: int = len(VOICE)) -> Samples:
    """Return what cameras write on a channel: a square wave of 80 bits in each of 25 frames a second (SMPTE 12M)."""
    bits = CHANCE.integers(0, 2, length * 2000 // RATE + 1)
    halves = np.stack((np.ones_like(bits), bits), axis=1).ravel()  # a change at each bit, and within each 1
    return np.asarray(0.3 * np.repeat((-1.0) ** np.cumsum(halves), RATE // 4000)[:length], np.float32)


def wav(folder: Path, channels: Sequence[Samples]) -> Path:
    path = folder / "channels.wav"
    soundfile.write(path, np.stack(channels, axis=1), RATE, subtype="PCM_16")
    return path


def hear(isolation: Isolation, voice: Vad | None, path: Path) -> tuple[Samples, tuple[str, ...]]:
    with chosen_track(isolation, path, DecodeLimits(), voice) as heard:
        return np.concatenate(list(heard.samples)), codes(heard.notes)


def level_db(samples: Samples) -> float:
    return float(10 * np.log10(np.mean(np.square(samples)) + 1e-12))


WRITTEN = {  # container, the options with which the ffmpeg program writes it
    "wav": "-c:a pcm_s16le",
    "rf64.wav": "-c:a pcm_s24le -rf64 always",
    "w64": "-c:a pcm_s16le",
    "aiff": "-c:a pcm_s16be",
    "au": "-c:a pcm_s16be",
    "caf": "-c:a pcm_s16be",
    "mov": "-c:a pcm_s16le",
    "mkv": "-c:a pcm_s16le",
    "flac": "-c:a flac",
    "wv": "-c:a wavpack",
    "m4a": "-c:a aac -b:a 400k",
    "ts": "-c:a aac -b:a 400k -ar 48000",
    "webm": "-c:a libopus -b:a 400k -mapping_family 255",
    "ogg": "-c:a libopus -b:a 400k -mapping_family 1",
}


LOW_BASS = ("m4a", "ts", "ogg")
"""Their encoders cut the fourth channel of 5.1 and 7.1 off above 120 Hz."""

INPUTS = [(kind, *place) for kind in WRITTEN for place in ((6, 3), (8, 7)) if kind not in LOW_BASS or place[1] != 3]


@pytest.mark.parametrize("written", INPUTS, ids=str)
def test_whoever_speaks_at_one_of_many_inputs_is_heard_as_loud_as_there(written, tmp_path, isolation, voice):
    container, inputs, active = written
    source = wav(tmp_path, [VOICE if one == active else hiss() for one in range(inputs)])
    path = tmp_path / f"made.{container}"
    order = "-af aformat=channel_layouts=7.1 " if inputs == 8 and container in ("ogg", "m4a", "ts", "flac") else ""
    command = f"ffmpeg -nostdin -v error -i {source} {order}{WRITTEN[container]} {path}"
    made = subprocess.run(command.split(), capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"this ffmpeg writes no such file: {made.stderr[-200:]!r}")
    for detector in (voice, None):
        samples, notes = hear(isolation, detector, path)
        lag = max(range(-9, 10), key=lambda lag: likeness(samples, VOICE, lag))
        assert likeness(samples, VOICE, lag) > 0.93
        assert level_db(samples[: len(VOICE)]) > level_db(VOICE) - 3
        assert notes == ()


def test_people_who_take_turns_at_six_inputs_are_all_heard(tmp_path, isolation, voice):
    channels = [hiss(length=6 * position(3)) for _ in range(6)]
    for turn, channel in enumerate((3, 0, 5, 2, 4, 1)):
        channels[channel][turn * position(3) : turn * position(3) + position(2.5)] += VOICE[: position(2.5)]
    samples, _ = hear(isolation, voice, wav(tmp_path, channels))
    for turn in range(6):
        said = samples[turn * position(3) :][: position(2.5)]
        assert likeness(said, VOICE[: position(2.5)], 0) > 0.9
        assert level_db(said) > level_db(VOICE[: position(2.5)]) - 3


def test_a_live_container_has_every_input_too(tmp_path, isolation):
    data = wav(tmp_path, [VOICE if one == 3 else hiss() for one in range(6)]).read_bytes()
    with isolation.live(DecodeLimits()) as live:

        def write() -> None:
            live.feed(data)
            live.finish()

        writer = threading.Thread(target=write)
        writer.start()
        samples = np.concatenate(list(live))
        writer.join()
    assert likeness(samples, VOICE, 0) > 0.93
    assert level_db(samples) > level_db(VOICE) - 3


def test_shares_do_not_depend_on_the_pieces_and_equal_channels_keep_their_level():
    sound = np.stack((VOICE[:RATE], OTHER[:RATE], hiss()[:RATE]), axis=1)
    whole = SharedGain(3).mix(sound)
    for piece in (1000, 160, 37):
        gain = SharedGain(3)
        parts = [gain.mix(sound[at : at + piece]) for at in range(0, RATE, piece)]
        assert np.abs(np.concatenate(parts) - whole).max() < 1e-6
    same = np.repeat(tone(1.0)[:, np.newaxis], 8, axis=1)
    assert np.abs(SharedGain(8).mix(same) - same[:, 0]).max() < 1e-5


TALKS = {
    "two readers": ((VOICE, OTHER), True),
    "an interpreter who begins late": ((np.tile(VOICE, 6), np.concatenate((hiss(), np.tile(OTHER, 5)))), True),
    "a call": ((np.concatenate((VOICE, hiss())), np.concatenate((hiss(), OTHER))), False),
    "a room": ((VOICE, 0.6 * np.roll(VOICE, 200) + 0.3 * np.roll(VOICE, 900)), False),
    "one voice in the middle of music": ((VOICE + hiss(0.05), VOICE + hiss(0.05)), False),
    "opposite channels": ((VOICE, -VOICE), False),
}


@pytest.mark.parametrize("name", TALKS)
def test_two_talks_side_by_side_are_named_and_nothing_else_is(name, tmp_path, isolation, voice):
    (left, right), are_two = TALKS[name]
    path = wav(tmp_path, (left + hiss(length=len(left)), right + hiss(length=len(left))))
    samples, notes = hear(isolation, voice, path)
    assert (TWO_TALKS in notes) is are_two
    assert len(samples) == len(left)
    if len(left) <= 2 * len(VOICE):
        assert (TWO_TALKS in codes(inspect(isolation, path, voice).notes)) is are_two


STRANGERS = {
    "hiss": hiss(0.2),
    "a quieter hiss": hiss(0.05),
    "time code": time_code(),
    "hum": 0.5 * tone(11, hertz=50),
    "a tone": tone(11, hertz=1000),
}


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("name", STRANGERS)
def test_speech_beside_a_stranger_on_the_other_channel_is_heard_alone(name, side, tmp_path, isolation, voice):
    stranger = np.asarray(STRANGERS[name], np.float32)[: len(VOICE)]
    path = wav(tmp_path, (VOICE, stranger) if side == 0 else (stranger, VOICE))
    samples, notes = hear(isolation, voice, path)
    assert np.corrcoef(samples, VOICE)[0, 1] > 0.98
    assert notes == ()
    assert inspect(isolation, path, voice).focus == side


def test_who_speaks_on_the_other_channel_later_is_heard_too(tmp_path, isolation, voice):
    left = np.concatenate((VOICE, hiss(0.1)))
    right = np.concatenate((hiss(0.1), OTHER))
    samples, _ = hear(isolation, voice, wav(tmp_path, (left, right)))
    assert np.corrcoef(samples[: len(VOICE)], VOICE)[0, 1] > 0.95
    assert np.corrcoef(samples[len(VOICE) + RATE :], OTHER[RATE:])[0, 1] > 0.95


def test_the_pieces_of_two_channels_make_no_difference_and_no_sample_is_lost():
    def detect(windows: Windows) -> list[float]:
        return [float(np.abs(window).max() > 0.15) for window in windows]

    sound = np.stack((VOICE, hiss(0.03)), axis=1)[: 9 * RATE + 77]
    results = []
    for piece in (len(sound), RATE, 777, WINDOW):
        mix = TwoChannels(lambda: detect)
        made = [mix.add(sound[at : at + piece]) for at in range(0, len(sound), piece)]
        results.append(np.concatenate([*made, mix.flush()]))
    assert all(len(result) == len(sound) for result in results)
    assert all(np.abs(result - results[0]).max() < 1e-6 for result in results)


def test_channels_of_joined_recordings_are_all_heard(tmp_path, isolation, voice):
    """The second one has more or fewer channels than the first, and speech on the last of them."""
    for first, second in ((1, 6), (2, 1), (2, 8), (6, 2), (8, 1)):
        data = b""
        for count in (first, second):
            file = io.BytesIO()
            channels = [VOICE if one == count - 1 else hiss() for one in range(count)]
            soundfile.write(file, np.stack(channels, axis=1), RATE, format="WAV")
            data += file.getvalue()
        path = tmp_path / "joined.wav"
        path.write_bytes(data)
        samples, _ = hear(isolation, voice, path)
        assert len(samples) == 2 * len(VOICE)
        assert likeness(samples[: len(VOICE)], VOICE, 0) > 0.9
        assert likeness(samples[len(VOICE) :], VOICE, 0) > 0.9


FORMS = (
    ("wav", "PCM_16"),
    ("wav", "FLOAT"),
    ("flac", "PCM_24"),
    ("caf", "ALAC_16"),
    ("w64", "PCM_16"),
    ("aiff", "PCM_24"),
)
ANSWERS = [VOICE[position(start) : position(start + 0.6)] for start in (0.4, 3.4, 5.5, 8.2)]


def answered(chance: random.Random) -> tuple[bytes, Samples, bool]:
    """Return a recording, what is said in it, and whether two talks are; a short answer after a pause is its end."""
    channels = chance.randint(1, 8)
    two_talks = channels == 2 and chance.random() < 0.5
    said = VOICE[: position(chance.uniform(3, 6))] if not two_talks else VOICE
    answer, pause = chance.choice(ANSWERS), position(chance.uniform(0.6, 3))
    said = np.concatenate((said, hiss(3e-4, pause), answer, hiss(3e-4, position(0.3))))
    channels = chance.randint(1, 8)
    active = chance.randrange(channels)
    two_talks = channels == 2 and chance.random() < 0.5
    sounds = [said if one == active else hiss(3e-4, len(said)) for one in range(channels)]
    if two_talks:
        sounds[1 - active] = np.resize(OTHER, len(said))
    file = io.BytesIO()
    container, subtype = chance.choice(FORMS)
    rate = chance.choice((RATE, 48000, 44100)) if container != "caf" else 48000
    each = [at_rate(one, rate) for one in sounds]
    soundfile.write(file, np.stack(each, axis=1), rate, format=container, subtype=subtype)
    return file.getvalue(), said, two_talks


def at_rate(sound: Samples, rate: int) -> Samples:
    """Return the sound at another rate, by straight lines: speech stays speech."""
    return np.interp(np.arange(0, len(sound), RATE / rate), np.arange(len(sound)), sound).astype(np.float32)


@pytest.mark.parametrize("seed", range(16))
def test_speech_on_any_input_two_talks_and_short_answers_are_heard_or_named(seed, tmp_path, isolation, voice):
    chance = random.Random(seed)
    made = [answered(chance) for _ in range(chance.randint(1, 3))]
    path = tmp_path / "recordings"
    path.write_bytes(b"".join(data for data, _, _ in made))
    samples, notes = hear(isolation, voice, path)
    assert len(samples) == pytest.approx(sum(len(said) for _, said, _ in made), abs=position(0.05) * len(made))
    jobs, at = jobs_of(samples, voice), 0
    for _, said, two_talks in made:
        heard = samples[at : at + len(said)]
        at += len(said)
        if two_talks:
            assert TWO_TALKS in notes or len(made) > 1 or likeness(heard, said, 0) > 0.9
            continue
        assert likeness(heard, said, 0) > 0.9
        assert level_db(heard) > level_db(said) - 6.5  # the mean of stereo
        end = at - position(0.3)
        assert any(start < end and stop > end - position(0.6) for job in jobs for start, stop in job.voiced)

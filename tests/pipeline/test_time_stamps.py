"""Tests of time stamps: words are where a player shows them, though clocks drift or sound begins late."""

import io
import subprocess
from pathlib import Path

import av
import numpy as np
import pytest

from pipeline.audio import Samples, position
from pipeline.ingest.decode import recording
from pipeline.ingest.input_formats import DecodeLimits
from pipeline.ingest.resampling import stretch
from tests.pipeline.sounds import SPEECH, Sound, codes, encode_audio, likeness, read, tone, tracks_in
from tests.pipeline.test_joined import hear

VOICE = np.tile(read(SPEECH / "human" / "jfk.flac"), 2)


def drifting(container: str, codec: str, factor: float) -> bytes:
    """Return the voice with time stamps that go by *factor* as fast as its samples."""
    whole, file = encode_audio(VOICE, container, codec, rate=48000), io.BytesIO()
    with av.open(io.BytesIO(whole)) as source, av.open(file, "w", format=container) as out:
        stream = out.add_stream_from_template(source.streams.audio[0])
        for packet in source.demux(audio=0):
            if packet.dts is not None and packet.pts is not None:
                packet.pts, packet.dts = round(packet.pts * factor), round(packet.dts * factor)
                packet.duration = round((packet.duration or 0) * factor)
                packet.stream = stream
                out.mux(packet)
    return file.getvalue()


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("factor", [0.9, 0.99, 1.01, 1.05])
@pytest.mark.parametrize(("container", "codec"), [("matroska", "aac"), ("mpegts", "aac"), ("webm", "libopus")])
def test_words_follow_the_time_stamps_to_both_sides(container, codec, factor, *, live):
    samples, notes = hear(drifting(container, codec, factor), live=live)
    expected = stretch(VOICE, round(len(VOICE) * factor))
    assert len(samples) == pytest.approx(len(expected), abs=position(0.15))
    for at in range(0, len(expected) - position(9), position(8)):
        part = slice(at, at + position(8))
        late = max(range(-40, 41), key=lambda lag: likeness(samples[part], expected[part], lag))
        assert abs(late) <= 13
        assert likeness(samples[part], expected[part], late) > 0.9
    assert notes == ()


@pytest.mark.parametrize(
    ("container", "codec"), [("matroska", "aac"), ("flv", "aac"), ("mp4", "aac"), ("ogg", "libopus")]
)
def test_sound_whose_stamps_are_only_rounded_is_not_stretched(container, codec):
    """It is the same as without any time stamps: as the codec gives it."""
    data = encode_audio(VOICE, container, codec, rate=48000)
    samples, _ = hear(data)
    late = max(range(-9, 10), key=lambda lag: likeness(samples, VOICE, lag))
    end = slice(-position(5) - 160 * 9, -160 * 9)
    assert likeness(samples[end], VOICE[end], late) > 0.97 or abs(len(samples) - len(VOICE)) < position(0.07)


@pytest.mark.parametrize("start_s", [3.0, 30.0])
@pytest.mark.parametrize(
    ("container", "codec"), [("matroska", "aac"), ("webm", "libopus"), ("mp4", "aac"), ("mov", "aac")]
)
def test_sound_that_begins_after_the_pictures_is_not_called_cut_off(container, codec, start_s):
    sound = VOICE[: position(8)]
    codec_of_film = container != "webm"
    if codec_of_film:
        data = encode_audio(sound, container, codec, rate=48000, film=True, start_s=start_s, film_s=start_s + 12)
    else:
        data = tracks_in(container, Sound(0 * VOICE, codec=codec), Sound(sound, codec=codec, start_s=start_s))
    with recording(io.BytesIO(data), DecodeLimits(), track=None if codec_of_film else 2) as audio:
        samples = np.concatenate(list(audio))
    assert codes(audio.notes) == ()
    assert likeness(samples[position(start_s) :], sound, 0) > 0.9


def test_late_sound_that_is_cut_off_says_so():
    data = encode_audio(VOICE, "matroska", "flac", film=True, start_s=3.0)
    assert codes(hear(data[: len(data) // 2])[1]) == ("audio_truncated",)


def transport(folder: Path, sound: Samples, number: int, *, film: bool, container: str = "mpegts") -> bytes:
    """Return a transport stream whose sound has this number (PID)."""
    (folder / "sound.wav").write_bytes(encode_audio(sound, "wav", "pcm_s16le"))
    pictures = "-f lavfi -i color=s=32x32:r=25:d=5" if film else ""
    maps = "-map 1:v -map 0:a -c:v mpeg2video -streamid 0:0x100 -streamid 1:" if film else "-streamid 0:"
    command = f"ffmpeg -nostdin -v error -y -i {folder}/sound.wav {pictures} {maps}{number} -c:a aac -ar 48000"
    subprocess.run([*command.split(), "-f", container, folder / "made"], check=True)
    return (folder / "made").read_bytes()


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("film", [False, True])
def test_transport_streams_with_other_numbers_that_follow_each_other_are_one_track(tmp_path, film, *, live):
    sounds = [VOICE[: position(5)], VOICE[position(5) : position(9)], VOICE[position(2) : position(6)]]
    data = b"".join(transport(tmp_path, one, 0x101 + n, film=film) for n, one in enumerate(sounds))
    samples, notes = hear(data, live=live)
    assert len(samples) == pytest.approx(sum(map(len, sounds)), abs=position(1.6 if film else 0.3))
    assert likeness(samples[: position(4.5)], sounds[0][: position(4.5)], 2) > 0.85
    assert max(likeness(samples[-position(3) :], sounds[2][-position(3) :], lag) for lag in range(-15, 16)) > 0.85
    assert notes == ()


def test_tracks_side_by_side_in_a_transport_stream_stay_two():
    data = tracks_in("mpegts", Sound(VOICE[: position(5)]), Sound(tone(5)))
    with recording(io.BytesIO(data), DecodeLimits()) as audio:
        assert len(audio.probe.tracks) == 2
        assert sum(map(len, audio)) == pytest.approx(position(5), abs=position(0.2))

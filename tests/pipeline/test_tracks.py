"""Tests of containers with several audio tracks: which one is heard, and what is said about the others."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from av.stream import Disposition

from pipeline.audio import RATE, Samples, position
from pipeline.errors import InvalidAudio, NoAudioStream, UndecodableAudio, UnknownTrack
from pipeline.ingest.input_formats import AUTO, MIX, SEPARATE, DecodeLimits, Track, TrackChoice, by_preference
from pipeline.ingest.isolation import Isolation
from pipeline.ingest.notes import OTHER_TRACKS, UNDECODABLE_TRACK
from pipeline.ingest.track_choice import chosen_track
from pipeline.ingest.vad import Vad
from tests.pipeline.sounds import SPEECH, Sound, film, likeness, read, tone, tracks_in

ANY = DecodeLimits()
ONE, OTHER = read(SPEECH / "human" / "jfk.flac"), read(SPEECH / "human" / "two_cities.flac")[: position(8)]
SILENCE = np.zeros(len(ONE), np.float32)
HUM = tone(11, hertz=50)


class Heard:
    def __init__(self, isolation: Isolation, voice: Vad | None, path: Path, track: TrackChoice) -> None:
        with chosen_track(isolation, path, ANY, voice, track=track, separate=track == SEPARATE) as heard:
            self.probe = heard.decoding.probe
            self.samples = np.concatenate(list(heard.samples))
            self.notes = heard.notes

    def is_like(self, sound: Samples) -> bool:
        return max(likeness(self.samples, sound, lag) for lag in range(-9, 10)) > 0.93


USUAL, ASIDE = Disposition.default.value, Disposition.comment.value
CHOICES = {  # tracks, the number that is heard, those that a warning names
    "silence first": ((Sound(SILENCE, USUAL), Sound(ONE)), 2, ()),
    "hum first": ((Sound(HUM, USUAL), Sound(ONE)), 2, ()),
    "two people": ((Sound(ONE, USUAL), Sound(OTHER)), 1, (2,)),
    "the usual one is the second": ((Sound(OTHER), Sound(ONE, USUAL)), 2, (1,)),
    "no usual one": ((Sound(SILENCE), Sound(ONE), Sound(OTHER), Sound(SILENCE)), 2, (3,)),
    "a commentary first": ((Sound(OTHER, ASIDE), Sound(ONE)), 2, (1,)),
    "a commentary by its title": ((Sound(OTHER, title="Director's commentary"), Sound(ONE)), 2, (1,)),
    "nobody speaks": ((Sound(SILENCE), Sound(HUM, USUAL)), 2, ()),
    "a damaged one first": ((Sound(ONE, USUAL, codec="flac", broken=True), Sound(ONE)), 2, ()),
    "another rate and length": ((Sound(SILENCE[:RATE], USUAL), Sound(ONE, codec="libopus")), 2, ()),
}


@pytest.mark.parametrize("name", CHOICES)
def test_the_usual_track_is_heard_if_somebody_speaks_on_it_else_the_first_with_speech(name, tmp_path, isolation, voice):
    sounds, number, named = CHOICES[name]
    path = tmp_path / "tracks.mkv"
    path.write_bytes(tracks_in("matroska", *sounds))
    heard = Heard(isolation, voice, path, AUTO)
    assert heard.probe.track == number
    assert len(heard.probe.tracks) == len(sounds)
    sound = sounds[number - 1].samples
    assert len(heard.samples) == pytest.approx(len(sound), abs=position(0.1))
    assert not sound.any() or sound is HUM or heard.is_like(sound)
    warnings = [note for note in heard.notes if note.startswith(OTHER_TRACKS)]
    assert len(warnings) == bool(named)
    assert all(f"track {number}" in warnings[0].lower() for number in named)
    damaged = [note for note in heard.notes if note.startswith(UNDECODABLE_TRACK)]
    assert len(damaged) == any(sound.broken for sound in sounds)


@pytest.mark.parametrize(
    ("container", "codec"),
    [("mp4", "aac"), ("mov", "pcm_s16le"), ("mpegts", "aac"), ("avi", "pcm_s16le"), ("ogg", "flac")],
)
def test_tracks_are_chosen_mixed_and_separated_in_every_container(container, codec, tmp_path, isolation, voice):
    path = tmp_path / "tracks"
    path.write_bytes(tracks_in(container, *(Sound(sound, codec=codec) for sound in (SILENCE, ONE, OTHER))))
    usual = Heard(isolation, voice, path, AUTO)
    assert usual.probe.track == 2
    assert usual.is_like(ONE)
    assert Heard(isolation, voice, path, 3).is_like(OTHER)
    mixed, separate = Heard(isolation, voice, path, MIX), Heard(isolation, voice, path, SEPARATE)
    assert separate.samples.shape == (len(mixed.samples), 3)
    assert separate.probe.channels == 3
    assert np.abs(separate.samples.sum(axis=1) - mixed.samples).max() < 1e-5
    assert likeness(separate.samples[:, 1], ONE, 0) > 0.8
    assert not mixed.notes


def test_a_mix_of_loud_tracks_stays_within_full_scale(tmp_path, isolation):
    path = tmp_path / "tracks.mov"
    path.write_bytes(tracks_in("mov", *[Sound(2 * HUM * 0.9, codec="pcm_s16le")] * 3))
    heard = Heard(isolation, None, path, MIX)
    assert np.abs(heard.samples).max() == pytest.approx(1.0, abs=0.01)
    assert np.corrcoef(heard.samples, HUM[: len(heard.samples)])[0, 1] > 0.99  # scaled, not clipped


def test_opposite_tracks_do_not_cancel_each_other(tmp_path, isolation):
    path = tmp_path / "tracks.mov"
    path.write_bytes(tracks_in("mov", Sound(ONE, codec="pcm_s16le"), Sound(-ONE, codec="pcm_s16le")))
    assert likeness(Heard(isolation, None, path, MIX).samples, ONE, 0) > 0.99


def test_a_track_in_the_language_that_is_spoken_is_tried_first():
    tracks = [
        Track(number=1, codec="aac", language="eng", default=True),
        Track(number=2, codec="aac", language="spa", aside=True),
        Track(number=3, codec="aac", language="es-MX"),
        Track(number=4, codec=None, language="spa"),
    ]
    assert [track.number for track in by_preference(tracks)] == [1, 3, 2]
    assert [track.number for track in by_preference(tracks, "es")] == [3, 1, 2]


def test_a_track_that_is_not_there_is_refused_with_the_names_of_those_that_are(tmp_path, isolation):
    path = tmp_path / "tracks.mkv"
    path.write_bytes(tracks_in("matroska", Sound(ONE, title="Host"), Sound(OTHER, title="Guest")))
    for number in (0, 3):
        with pytest.raises(UnknownTrack, match=r"2 audio tracks \(1 \(Host\), 2 \(Guest\)\)"):
            isolation.probe(path, ANY, track=number)
    with pytest.raises(UnknownTrack, match="give the number of one"):
        isolation.probe(path, replace(ANY, max_tracks=1), track=MIX)


def test_a_damaged_track_is_refused_by_its_number_and_silent_among_all(tmp_path, isolation, voice):
    path = tmp_path / "tracks.mkv"
    path.write_bytes(tracks_in("matroska", Sound(ONE, codec="flac", broken=True), Sound(ONE)))
    with pytest.raises((InvalidAudio, UndecodableAudio)):
        isolation.probe(path, ANY, track=1)
    heard = Heard(isolation, voice, path, SEPARATE)
    assert not heard.samples[:, 0].any()
    assert heard.samples[:, 1].any()
    assert [note for note in heard.notes if note.startswith(UNDECODABLE_TRACK)]


def test_a_late_look_at_a_long_track_leaves_most_of_it_out(tmp_path, isolation):
    """After ten minutes only ten seconds of each minute are looked at."""
    path = tmp_path / "long.mkv"
    long = np.zeros(position(900), np.float32)
    long[position(870) : position(871)] = 0.5
    long[position(845) : position(846)] = 0.25
    path.write_bytes(tracks_in("matroska", Sound(long, codec="pcm_s16le", rate=RATE), Sound(ONE[:RATE])))
    with isolation.decoding(path, ANY, track=1, sparse=True) as audio:
        looked = np.concatenate(list(audio))
    assert np.abs(looked).max() == pytest.approx(0.25, abs=0.01)
    assert looked[position(845.5)] == pytest.approx(0.25, abs=0.01)


def test_pictures_are_no_track(tmp_path, isolation):
    path = tmp_path / "film.mp4"
    path.write_bytes(film(1.0))
    with pytest.raises(NoAudioStream, match="no audio track"):
        isolation.probe(path, ANY, track=2)

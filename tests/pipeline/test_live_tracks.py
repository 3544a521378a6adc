"""Tests of live containers with several audio tracks, as they come through a decoder in pieces."""

import threading
from collections.abc import Sequence

import numpy as np
import pytest
from av.stream import Disposition

from pipeline.audio import RATE, Samples, position
from pipeline.errors import InvalidAudio
from pipeline.ingest.input_formats import AUTO, MIX, SEPARATE, DecodeLimits, Track, TrackChoice
from pipeline.ingest.isolation import Isolation
from pipeline.ingest.messages import TrackPiece
from pipeline.ingest.notes import OTHER_TRACKS
from pipeline.ingest.track_choice import AHEAD, PATIENCE, SpokenTrack, all_tracks
from pipeline.ingest.vad import Vad
from tests.pipeline.sounds import SPEECH, Sound, likeness, read, tone, tracks_in

ONE, OTHER = read(SPEECH / "human" / "jfk.flac"), read(SPEECH / "human" / "two_cities.flac")[: position(8)]
SILENCE = np.zeros(len(ONE), np.float32)
HUM = tone(11, hertz=50)
USUAL = Disposition.default.value
LIVE = [
    ("matroska", "aac", {}),
    ("matroska", "libopus", {}),
    ("mpegts", "aac", {}),
    ("mp4", "aac", {"movflags": "empty_moov+frag_keyframe+default_base_moof", "frag_duration": "3000000"}),
    ("ogg", "flac", {}),
]


class Live:
    """What is heard of a container that comes in pieces of 700 bytes."""

    def __init__(self, isolation: Isolation, data: bytes, track: TrackChoice, voice: Vad | None) -> None:
        separate = 2 if track == SEPARATE else None
        self.told: list[tuple[int, str]] = []  # samples heard before each note, and the note
        heard: list[Samples] = []
        with isolation.live(DecodeLimits(), track=track, separate=separate, unmixed=track == AUTO) as live:

            def write() -> None:
                for at in range(0, len(data), 700):
                    if not live.feed(data[at : at + 700]):
                        break
                live.finish()

            writer = threading.Thread(target=write)
            writer.start()
            try:
                self.probe = live.open()
                pieces = live.pieces()
                tracks = self.probe.tracks
                spoken = SpokenTrack(tracks, voice)
                for item in spoken.follow(pieces) if track == AUTO else all_tracks(tracks, pieces, mixed=track == MIX):
                    if isinstance(item, str):
                        self.told.append((sum(map(len, heard)), item))
                    else:
                        heard.append(item)
            finally:
                live.kill()
                writer.join()
            self.notes = (*live.notes, *(spoken.notes if track == AUTO else ()))
        self.samples = np.concatenate(heard)


def alike(samples: Samples, sound: Samples) -> float:
    """Return how like two sounds are that begin at the same time, give or take an encoder's delay."""
    return max(likeness(samples, sound, lag) for lag in range(-9, 10))


@pytest.mark.parametrize(("container", "codec", "options"), LIVE)
def test_live_tracks_are_chosen_mixed_and_separated_in_every_container(container, codec, options, isolation, voice):
    two = tracks_in(container, Sound(ONE, codec=codec), Sound(OTHER, codec=codec), options=options)
    usual, mixed, separate = (Live(isolation, two, track, voice) for track in (AUTO, MIX, SEPARATE))
    assert alike(usual.samples, ONE) > 0.93
    assert alike(separate.samples[:, 0], ONE) > 0.93
    assert alike(separate.samples[:, 1], OTHER) > 0.93
    assert separate.samples.shape == (len(mixed.samples), 2)
    assert np.abs(separate.samples.sum(axis=1) - mixed.samples).max() < 1e-5
    assert len(usual.samples) == pytest.approx(len(ONE), abs=position(0.1))
    assert len(usual.told) == 1
    assert usual.told[0][1].startswith(f"{OTHER_TRACKS}: Somebody speaks on track 2, but track 1 is transcribed.")
    assert usual.told[0][0] < position(6)
    assert "Somebody also spoke on track 2, 6 s. Start again" in usual.notes[0]
    assert mixed.notes == separate.notes == ()
    silent_first = tracks_in(container, Sound(SILENCE, codec=codec), Sound(ONE, codec=codec), options=options)
    heard = Live(isolation, silent_first, AUTO, voice)
    assert alike(heard.samples, ONE) > 0.93
    assert heard.told == []
    assert heard.notes == ()


CHOICES = {  # tracks, what is heard, the numbers of the tracks that a warning names
    "the usual one is the second": ((Sound(OTHER), Sound(ONE, USUAL)), ONE, (1,)),
    "a hum first": ((Sound(HUM, USUAL), Sound(SILENCE), Sound(ONE)), ONE, ()),
    "a damaged one first": ((Sound(ONE, USUAL, codec="flac", broken=True), Sound(OTHER)), OTHER, ()),
    "nobody speaks": ((Sound(HUM, USUAL), Sound(SILENCE)), HUM, ()),
    "one begins late": ((Sound(ONE), Sound(OTHER, start_s=12)), ONE, (2,)),
    "the usual one begins late": ((Sound(ONE, USUAL, start_s=12), Sound(OTHER)), OTHER, (1,)),
    "one ends early": ((Sound(SILENCE[:RATE], USUAL), Sound(ONE, rate=22050)), ONE, ()),
    "surround": ((Sound(OTHER), Sound(ONE, USUAL, codec="ac3", layout="5.1")), ONE, (1,)),
}


@pytest.mark.parametrize("name", CHOICES)
def test_the_live_track_on_which_somebody_speaks_is_heard_from_its_first_word(name, isolation, voice):
    sounds, sound, named = CHOICES[name]
    heard = Live(isolation, tracks_in("matroska", *sounds), AUTO, voice)
    assert len(heard.samples) >= len(sound) - position(0.1)
    assert sound is HUM or alike(heard.samples[: len(sound)], sound) > 0.93
    assert [note.split(",")[0].rpartition(" ")[2] for _, note in heard.told] == [str(number) for number in named]
    assert any("undecodable_track" in note for note in heard.notes) == any(sound.broken for sound in sounds)


def test_without_a_voice_detector_the_usual_track_is_heard_and_the_others_are_named(isolation):
    heard = Live(isolation, tracks_in("matroska", Sound(OTHER), Sound(ONE, USUAL)), AUTO, None)
    assert alike(heard.samples, ONE) > 0.93
    assert heard.notes == (f"{OTHER_TRACKS}: Track 2 of 2 was transcribed. Set track for another one.",)


def test_a_live_container_with_another_number_of_tracks_than_ordered_is_refused(isolation):
    with pytest.raises(InvalidAudio, match="3 audio tracks instead of 2"):
        Live(isolation, tracks_in("matroska", *[Sound(ONE)] * 3), SEPARATE, None)


TRACKS = [Track(number=number, codec="aac") for number in (1, 2)]


def pieces_of(number: int, sound: Samples, start: int = 0) -> list[TrackPiece]:
    return [TrackPiece(number, start + at, sound[at : at + 320]) for at in range(0, len(sound), 320)]


@pytest.mark.parametrize("mode", [AUTO, SEPARATE])
def test_nothing_is_lost_or_late_where_one_track_comes_after_the_other(mode, voice):
    """The pieces of one track come 8 s before those of the other, or more than PATIENCE."""
    for apart, order in ((8, (1, 2)), (8, (2, 1)), (11, (1, 2))):
        speech = {1: np.concatenate((SILENCE, SILENCE)), 2: np.concatenate((SILENCE, ONE))}
        pieces: list[TrackPiece] = []
        for at in range(0, 22 * RATE, apart * RATE):
            for number in order:
                pieces += pieces_of(number, speech[number][at : at + apart * RATE], at)
        if mode == SEPARATE:
            heard = np.concatenate(list(all_tracks(TRACKS, pieces, mixed=False)))[:, 1]
        else:
            heard = np.concatenate(
                [one for one in SpokenTrack(TRACKS, voice).follow(pieces) if not isinstance(one, str)]
            )
        late = (len(heard) - len(speech[2])) if apart * RATE > PATIENCE else 0
        assert alike(heard[len(SILENCE) + late :], ONE) > 0.9


def test_the_words_of_the_usual_track_wait_for_no_other_track(voice):
    """The other track has no piece at all. Until somebody has spoken for a second the samples come a second late."""
    spoken = SpokenTrack(TRACKS, voice)
    heard = 0
    for given, piece in enumerate(pieces_of(1, ONE), 1):
        heard += sum(len(item) for item in spoken.follow([piece]) if not isinstance(item, str))
        late = 0 if given * 320 > 3 * RATE else AHEAD * 512 + RATE // 2
        assert given * 320 - heard <= late


def test_a_long_gap_of_one_track_takes_no_memory_and_keeps_its_time():
    """A guest speaks again after nine minutes in which the host's track went on."""
    minutes = 9
    long = [TrackPiece(1, at * RATE, np.ones(RATE, np.float32)) for at in range(minutes * 60)]
    guest = [TrackPiece(2, 0, np.ones(RATE, np.float32))]
    back = [TrackPiece(2, minutes * 60 * RATE, np.ones(RATE, np.float32))]
    blocks: Sequence[Samples] = list(all_tracks(TRACKS, [*guest, *long, *back], mixed=False))
    assert max(map(len, blocks)) <= PATIENCE + RATE
    assert np.concatenate(blocks)[:, 1].nonzero()[0].tolist() == [*range(RATE), *range(540 * RATE, 541 * RATE)]
    alone = list(all_tracks(TRACKS, [*guest, *back], mixed=True))  # the others wait for nothing behind a gap of all
    assert sum(map(len, alone)) == 541 * RATE
    assert max(map(len, alone)) <= PATIENCE + RATE

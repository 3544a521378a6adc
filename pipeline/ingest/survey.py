"""Chooses the audio track of a file that is heard: the usual one if somebody speaks on it, else the first with speech.

A file with one track costs nothing more. Of several tracks each is decoded until somebody has spoken for a second, and
of the later part of a long recording only a sixth, so that a film is not decoded once for each of its tracks.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.audio import RATE, WINDOW
from pipeline.errors import AudioTooLong, DecodeTimeout, InvalidAudio, UndecodableAudio
from pipeline.ingest.containers import DecodeLimits, Probe
from pipeline.ingest.encodings import RawAudio
from pipeline.ingest.framer import Framer
from pipeline.ingest.isolation import Decoding, Isolation
from pipeline.ingest.tracks import AUTO, OTHER_TRACKS, UNDECODABLE_TRACK, TrackChoice, by_preference
from pipeline.ingest.vad import VoiceDetector

SPEAKS = RATE
"""The samples with speech after which somebody speaks on a track: more than a voice detector finds in music."""

IS_SPEECH = 0.5

SILENT = 3e-4
"""A second whose samples are all below this, -70 dBFS, is not looked at: it costs more than decoding it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The track that is heard, and notes about the others for readers of the transcript."""

    track: TrackChoice
    notes: tuple[str, ...] = ()


@contextmanager
def chosen_track(
    isolation: Isolation,
    path: Path,
    limits: DecodeLimits,
    voice: VoiceDetector | None,
    *,
    track: TrackChoice = AUTO,
    separate: bool = False,
    raw: RawAudio | None = None,
) -> "Iterator[tuple[Decoding, tuple[str, ...]]]":
    """Decode the *track* of a file, and return notes about the tracks that are not heard. See Isolation.decoding().

    It blocks. Without *voice* AUTO is the track that players choose.
    """
    with ExitStack() as stack:
        audio = stack.enter_context(isolation.decoding(path, limits, separate=separate, track=track, raw=raw))
        notes: tuple[str, ...] = ()
        if track == AUTO and voice is not None and len(audio.probe.tracks) > 1:
            stack.close()  # one decoder at a time, because their memory is shared
            choice = choose_track(isolation, path, limits, voice, audio.probe)
            notes = choice.notes
            audio = stack.enter_context(isolation.decoding(path, limits, separate=separate, track=choice.track))
        yield audio, notes


def choose_track(isolation: Isolation, path: Path, limits: DecodeLimits, voice: VoiceDetector, probe: Probe) -> Choice:
    """Listen to the tracks of a file that has several. Raises what Isolation.decoding() raises."""
    spoken = speech_by_track(isolation, path, limits, voice, probe)
    heard = {number: count for number, count in spoken.items() if count is not None}
    if not heard:
        return Choice(AUTO)
    chosen = next((number for number, count in heard.items() if count >= SPEAKS), None)
    if chosen is None:
        chosen = max(heard, key=lambda number: heard[number])  # of equals the first
    names = {track.number: track.name for track in probe.tracks}
    damaged = [f"{UNDECODABLE_TRACK}: Track {names[one]} cannot be decoded." for one in spoken if one not in heard]
    others = sorted(number for number, count in heard.items() if count >= SPEAKS and number != chosen)
    if not others:
        return Choice(chosen, tuple(damaged))
    listed = ", ".join(names[number] for number in others)
    told = f"Track {names[chosen]} was heard. Somebody also speaks on track {listed}: give track to hear another one"
    return Choice(chosen, (*damaged, f"{OTHER_TRACKS}: {told}, or all of them with mix or separate."))


def speech_by_track(
    isolation: Isolation, path: Path, limits: DecodeLimits, voice: VoiceDetector, probe: Probe
) -> Mapping[int, int | None]:
    """Return, by the number of each track, in the order of preference, how much speech it has, in samples.

    Counting ends with SPEAKS. None: the track cannot be decoded.
    """
    return {
        track.number: _speech_on(isolation, path, limits, voice, track.number) for track in by_preference(probe.tracks)
    }


def _speech_on(isolation: Isolation, path: Path, limits: DecodeLimits, voice: VoiceDetector, number: int) -> int | None:
    detect, framer, spoken = voice.stream(), Framer(), 0
    try:
        with isolation.decoding(path, limits, track=number, sparse=True) as audio:
            for samples in audio:
                if float(np.abs(samples).max()) < SILENT:
                    continue
                windows = framer.windows_of(samples)
                spoken += WINDOW * sum(probability >= IS_SPEECH for probability in detect(windows))
                if spoken >= SPEAKS:
                    break
    except AudioTooLong:
        return spoken
    except (InvalidAudio, UndecodableAudio, DecodeTimeout):
        return None
    return spoken

"""Says what would be heard of a file, before it is transcribed. It blocks, and decodes the whole file twice."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.audio import RATE
from pipeline.ingest.containers import DecodeLimits, Probe
from pipeline.ingest.crosstalk import CrosstalkGate
from pipeline.ingest.framer import Framer
from pipeline.ingest.gain import QUIET_INPUT, InputLevel
from pipeline.ingest.isolation import Isolation
from pipeline.ingest.survey import SPEAKS, chosen_track
from pipeline.ingest.vad import VoiceDetector


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """One channel of the track that is heard."""

    number: int  # from 0
    loudest_db: float  # the loudest sustained sound, in dBFS
    copy_of: int | None  # the channel that holds the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What would be heard of a file."""

    probe: Probe  # of the track that is heard
    focus: int | None  # the channel that is heard while somebody speaks there, instead of the mix
    speech: dict[int, bool | None]  # by track: whether somebody speaks; None: it cannot be decoded
    sound_s: float  # the length of the sound
    spoken_s: float  # how much of it has speech
    loudest_db: float  # the loudest sustained sound, in dBFS
    speech_db: float | None  # the loudest sustained speech
    channels: tuple[Channel, ...]
    notes: tuple[str, ...]  # "code: message", as in a transcript


def inspect(isolation: Isolation, path: Path, voice: VoiceDetector) -> Inspection:
    """Decode and listen to a file. Raises what Isolation.decoding() raises."""
    level, framer, detect, length = InputLevel(), Framer(), voice.stream(), 0
    with chosen_track(isolation, path, DecodeLimits(), voice) as heard:
        for samples in heard.samples:
            length += len(samples)
            windows = framer.windows_of(samples)
            level.measure(windows, detect(windows))
        probe, choice, focus, notes = heard.audio.probe, heard.choice, heard.focus, heard.notes
    speech: dict[int, bool | None] = dict.fromkeys(track.number for track in probe.tracks)
    speech |= {number: None if count is None else count >= SPEAKS for number, count in choice.spoken.items()}
    speech[probe.track] = level.spoken >= min(SPEAKS, length // 2)
    channels = _channels(isolation, path, probe) if probe.channels > 1 else ()
    quiet = level.quiet_speech or level.silence
    return Inspection(
        probe=probe,
        focus=focus,
        speech=speech,
        sound_s=length / RATE,
        spoken_s=level.spoken / RATE,
        loudest_db=level.loudest_db,
        speech_db=level.speech_db,
        channels=channels,
        notes=(*notes, *([f"{QUIET_INPUT}: {quiet}"] if quiet else [])),
    )


def _channels(isolation: Isolation, path: Path, probe: Probe) -> tuple[Channel, ...]:
    gate = CrosstalkGate(probe.channels)
    each = [(InputLevel(), Framer()) for _ in range(probe.channels)]
    with isolation.decoding(path, DecodeLimits(), track=probe.track, separate=True) as audio:
        for samples in audio:
            gate.add(samples)
            for (level, framer), own in zip(each, np.ascontiguousarray(samples.T), strict=True):
                windows = framer.windows_of(own)
                level.measure(windows, [0.0] * len(windows))
    gate.flush()
    return tuple(
        Channel(number=number, loudest_db=level.loudest_db, copy_of=gate.copies.get(number))
        for number, (level, _) in enumerate(each)
    )

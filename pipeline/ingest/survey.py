"""Chooses what is heard of a file: the usual track if somebody speaks on it, else the first with speech.

Of surround sound a single channel may be heard rather than the mix: the centre, or one that the mix drowns. A file with
one track in mono or stereo costs nothing more (two_channels.py looks after stereo). Otherwise each track is decoded
until somebody has spoken for a second, and of the later part of a long recording only a sixth, so that a film
is not decoded once for each of its tracks.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pipeline.audio import RATE, WINDOW, Samples
from pipeline.errors import AudioTooLong, DecodeTimeout, InvalidAudio, UndecodableAudio
from pipeline.ingest.containers import DecodeLimits, Probe
from pipeline.ingest.encodings import RawAudio
from pipeline.ingest.focus import IS_SPEECH, SILENT, FocusMix, Mixer, PlainMix, bass_of, centre_of, is_bass, mixed
from pipeline.ingest.framer import Framer
from pipeline.ingest.isolation import Decoding, Isolation
from pipeline.ingest.mixing import ChannelMix
from pipeline.ingest.tracks import ALL_TRACKS, AUTO, OTHER_TRACKS, UNDECODABLE_TRACK, TrackChoice, by_preference
from pipeline.ingest.two_channels import TwoChannels
from pipeline.ingest.vad import VoiceDetector

STEREO = 2

SPEAKS = RATE
"""The samples with speech after which somebody speaks on a track: more than a voice detector finds in music."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What is heard of a recording, and notes about the rest for readers of the transcript."""

    track: TrackChoice
    focus: int | None = None  # the channel that is heard while somebody speaks there, instead of the mix
    notes: tuple[str, ...] = ()
    spoken: Mapping[int, int | None] = field(default_factory=dict)
    """The samples with speech on each track that was looked at, up to a few more than SPEAKS; None: undecodable."""


@dataclass(frozen=True, slots=True)
class Speech:
    """How much somebody speaks on a track, in samples, and the channel that should be heard. Counting stops early."""

    samples: int
    focus: int | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    """A recording that is being decoded, with notes for readers of its transcript."""

    audio: Decoding
    samples: Iterator[Samples]  # of shape (n,), or (n, channels) if the channels are separate
    choice: Choice
    stereo: TwoChannels | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """All notes. They are complete after the last sample."""
        return (*self.audio.notes, *self.choice.notes, *(self.stereo.notes if self.stereo else ()))

    @property
    def focus(self) -> int | None:
        """The channel that is heard while somebody speaks there, instead of the mix. Known after the last sample."""
        return self.stereo.alone if self.stereo else self.choice.focus


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
    language: str | None = None,
) -> "Iterator[Heard]":
    """Decode the *track* of a file; of surround sound the centre while somebody speaks there, else the mix.

    It blocks. See Isolation.decoding(). Without *voice* AUTO is the track that players choose, and all channels are
    mixed. A track in the *language* that is spoken is tried before others.
    """
    unmixed = voice is not None and track not in ALL_TRACKS
    with ExitStack() as stack:
        audio = stack.enter_context(
            isolation.decoding(path, limits, separate=separate or unmixed, track=track, raw=raw)
        )
        choice = Choice(track)
        several = track == AUTO and len(audio.probe.tracks) > 1
        if voice is not None and unmixed and raw is None and (several or _is_drowned(audio.probe, separate=separate)):
            stack.close()  # one decoder at a time, because their memory is shared
            choice = _choose(_Listener(isolation, path, limits, voice), audio.probe, language, several=several)
            decoding = isolation.decoding(path, limits, separate=True, track=choice.track)
            audio = stack.enter_context(decoding)
        if voice is None or not unmixed or separate:
            yield Heard(audio, iter(audio), choice)
            return
        channels, stereo = audio.probe.channels, None
        mix: Mixer = PlainMix(channels)
        if channels == STEREO:
            mix = stereo = TwoChannels(voice.stream)
        elif choice.focus is not None:
            mix = FocusMix(voice.stream(), channels, choice.focus)
        yield Heard(audio, mixed(audio, mix), choice, stereo)


def _is_drowned(probe: Probe, *, separate: bool) -> bool:
    """Return whether a voice may drown in the mix of all channels."""
    return not separate and probe.channels > STEREO


def _choose(listener: "_Listener", probe: Probe, language: str | None, *, several: bool) -> Choice:
    """Listen to all tracks if there are *several*, else to that of the *probe*."""
    tracks = by_preference(probe.tracks, language) if several else [probe.tracks[probe.track - 1]]
    spoken = {track.number: listener.hear(track.number) for track in tracks}
    heard = {number: speech for number, speech in spoken.items() if speech is not None}
    if not heard:
        return Choice(probe.track, spoken=dict.fromkeys(spoken))
    chosen = next((number for number, speech in heard.items() if speech.samples >= SPEAKS), None)
    if chosen is None:
        chosen = max(heard, key=lambda number: heard[number].samples)  # of equals the first
    names = {track.number: track.name for track in tracks}
    notes = [f"{UNDECODABLE_TRACK}: Track {names[one]} cannot be decoded." for one in spoken if one not in heard]
    others = sorted(number for number, speech in heard.items() if speech.samples >= SPEAKS and number != chosen)
    if others:
        listed = ", ".join(names[number] for number in others)
        told = f"Track {names[chosen]} was heard. Somebody also speaks on track {listed}: give track to hear another"
        notes.append(f"{OTHER_TRACKS}: {told} one, or all of them with mix or separate.")
    counts = {number: None if speech is None else speech.samples for number, speech in spoken.items()}
    return Choice(chosen, heard[chosen].focus, tuple(notes), counts)


@dataclass(frozen=True, slots=True)
class _Listener:
    """Listens to the tracks of one file until somebody has spoken."""

    isolation: Isolation
    path: Path
    limits: DecodeLimits
    voice: VoiceDetector

    def hear(self, number: int) -> Speech | None:
        """Return how much somebody speaks on track *number*; None: it cannot be decoded."""
        try:
            with self._decoding(number, separate=False) as audio:
                channels = audio.probe.channels
                if channels <= STEREO:
                    counts = _Counts(self.voice, 1)
                    for samples in audio:
                        counts.add(samples[:, np.newaxis])
                        if counts.spoken[0] >= SPEAKS:
                            break
                    if counts.spoken[0] >= SPEAKS or channels == 1:
                        return Speech(counts.spoken[0])
            with self._decoding(number, separate=True) as audio:
                return self._hear_channels(audio)
        except AudioTooLong:
            return Speech(0)
        except (InvalidAudio, UndecodableAudio, DecodeTimeout):
            return None

    def _decoding(self, number: int, *, separate: bool) -> AbstractContextManager[Decoding]:
        return self.isolation.decoding(self.path, self.limits, track=number, separate=separate, sparse=True)

    def _hear_channels(self, audio: Decoding) -> Speech:
        """Listen to each channel and to the mix, until somebody has spoken in the centre, or without one in the mix.

        Where that never happens, the channel with by far the most speech is heard, if the mix drowns it.
        """
        channels, centre = audio.probe.channels, centre_of(audio.probe.layout)
        bass = bass_of(audio.probe.layout)
        counts, mixing = _Counts(self.voice, channels + 1), ChannelMix(channels)
        for samples in audio:
            if bass is not None and not is_bass(samples[:, bass]):
                bass = centre = None  # it is a microphone like the others, whatever the order is called
            counts.add(np.concatenate((samples, mixing.mix(samples)[:, np.newaxis]), axis=1))
            decides = channels if centre is None else centre
            if counts.spoken[decides] >= SPEAKS:
                return Speech(counts.spoken[decides], centre)
            if centre is None and max(counts.spoken) >= 5 * SPEAKS:
                break
        mix = channels
        best = max(range(channels), key=lambda channel: counts.spoken[channel])
        drowned = counts.spoken[best] >= max(SPEAKS, 2 * counts.spoken[mix])
        return Speech(max(counts.spoken), best if drowned else centre)


class _Counts:
    """Counts the samples with speech of several sounds side by side."""

    def __init__(self, voice: VoiceDetector, sounds: int) -> None:
        self._each = [(Framer(), voice.stream()) for _ in range(sounds)]
        self.spoken = [0] * sounds

    def add(self, samples: Samples) -> None:
        """Take the next samples, of shape (n, sounds). Sounds that are silent are passed over."""
        for sound, (framer, detect) in enumerate(self._each):
            own = np.ascontiguousarray(samples[:, sound])
            if float(np.abs(own).max()) >= SILENT:
                speech = detect(framer.windows_of(own))
                self.spoken[sound] += WINDOW * sum(probability >= IS_SPEECH for probability in speech)

"""Chooses what is transcribed of a recording: which track, and of surround sound which channel.

- Of a file: chosen_track(). The usual track if somebody speaks on it, else the first with speech; of surround sound the
  centre, or a channel that the mix would drown. A file with one track in mono or stereo costs nothing more (stereo.py
  looks after stereo). Otherwise each track is decoded until somebody has spoken for a second, and of the later part of
  a long recording only a sixth, so that a film is not decoded once for each of its tracks.
- Of a live container with several tracks: SpokenTrack, or all_tracks() mixed or side by side. The pieces of the tracks
  come as the container has them: some track may be seconds ahead of others, or have none at all.
- inspect() says all of this about a file before it is transcribed.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pipeline.audio import RATE, WINDOW, Framer, Samples, seconds
from pipeline.errors import AudioTooLong, DecodeTimeout, InvalidAudio, PipelineError, UndecodableAudio
from pipeline.ingest.crosstalk import CrosstalkGate
from pipeline.ingest.gain import InputLevel
from pipeline.ingest.input_formats import (
    ALL_TRACKS,
    AUTO,
    DecodeLimits,
    Probe,
    RawAudio,
    Track,
    TrackChoice,
    by_preference,
)
from pipeline.ingest.isolation import Decoding, Isolation
from pipeline.ingest.messages import TrackPiece
from pipeline.ingest.mixing import (
    IS_SPEECH,
    SILENT,
    ChannelMix,
    FocusMix,
    Mixer,
    TrackMix,
    bass_of,
    centre_of,
    is_bass,
    live_mix,
    mixed,
)
from pipeline.ingest.notes import OTHER_TRACKS, QUIET_INPUT, undecodable_track
from pipeline.ingest.stereo import TwoChannels
from pipeline.ingest.vad import Vad

STEREO = 2

SPEAKS = RATE
"""The samples with speech after which somebody speaks on a track: more than a VAD finds in music."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What is transcribed of a recording, and notes about the rest for readers of the transcript."""

    track: TrackChoice
    focus: int | None = None  # the channel that is used while somebody speaks there, instead of the mix
    notes: tuple[str, ...] = ()
    spoken: Mapping[int, int | None] = field(default_factory=dict)
    """The samples with speech on each track that was looked at, up to a few more than SPEAKS; None: undecodable."""


@dataclass(frozen=True, slots=True)
class Speech:
    """How much somebody speaks on a track, in samples, and the channel that should be used. Counting stops early."""

    samples: int
    focus: int | None = None


@dataclass(frozen=True, slots=True)
class ChosenAudio:
    """A recording that is being decoded, with notes for readers of its transcript."""

    decoding: Decoding
    samples: Iterator[Samples]  # of shape (n,), or (n, channels) if the channels are separate
    choice: Choice
    stereo: TwoChannels | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """All notes. They are complete after the last sample."""
        return (*self.decoding.notes, *self.choice.notes, *(self.stereo.notes if self.stereo else ()))

    @property
    def focus(self) -> int | None:
        """The channel that is used while somebody speaks there, instead of the mix. Known after the last sample."""
        return self.stereo.alone if self.stereo else self.choice.focus


@contextmanager
def chosen_track(
    isolation: Isolation,
    path: Path,
    limits: DecodeLimits,
    vad: Vad | None,
    *,
    track: TrackChoice = AUTO,
    separate: bool = False,
    raw: RawAudio | None = None,
    language: str | None = None,
) -> "Iterator[ChosenAudio]":
    """Decode the *track* of a file; of surround sound the centre while somebody speaks there, else the mix.

    It blocks. See Isolation.decoding(). Without *vad* AUTO is the track that players choose, and all channels are
    mixed. A track in the *language* that is spoken is tried before others.
    """
    unmixed = vad is not None and track not in ALL_TRACKS
    with ExitStack() as stack:
        audio = stack.enter_context(
            isolation.decoding(path, limits, separate=separate or unmixed, track=track, raw=raw)
        )
        choice = Choice(track)
        several = track == AUTO and len(audio.probe.tracks) > 1
        may_drown = not separate and audio.probe.channels > STEREO  # a voice, in the mix of all channels
        if vad is not None and unmixed and raw is None and (several or may_drown):
            stack.close()  # one decoder at a time, because their memory is shared
            choice = _choose(_Listener(isolation, path, limits, vad), audio.probe, language, several=several)
            decoding = isolation.decoding(path, limits, separate=True, track=choice.track)
            audio = stack.enter_context(decoding)
        if vad is None or not unmixed or separate:
            yield ChosenAudio(audio, iter(audio), choice)
            return
        channels, stereo = audio.probe.channels, None
        mix: Mixer = ChannelMix(channels)
        if channels == STEREO:
            mix = stereo = TwoChannels(vad.stream)
        elif choice.focus is not None:
            mix = FocusMix(vad.stream(), channels, choice.focus)
        yield ChosenAudio(audio, mixed(audio, mix), choice, stereo)


def _choose(listener: "_Listener", probe: Probe, language: str | None, *, several: bool) -> Choice:
    """Listen to all tracks if there are *several*, else to that of the *probe*."""
    tracks = by_preference(probe.tracks, language) if several else [probe.tracks[probe.track - 1]]
    spoken = {track.number: listener.speech_on(track.number) for track in tracks}
    decoded = {number: speech for number, speech in spoken.items() if speech is not None}
    if not decoded:
        return Choice(probe.track, spoken=dict.fromkeys(spoken))
    chosen = next((number for number, speech in decoded.items() if speech.samples >= SPEAKS), None)
    if chosen is None:
        chosen = max(decoded, key=lambda number: decoded[number].samples)  # of equals the first
    names = {track.number: track.name for track in tracks}
    notes = [undecodable_track(names[one]) for one in spoken if one not in decoded]
    others = sorted(number for number, speech in decoded.items() if speech.samples >= SPEAKS and number != chosen)
    if others:
        listed = ", ".join(names[number] for number in others)
        message = f"Track {names[chosen]} was transcribed. Somebody also speaks on track {listed}. Set track for"
        notes.append(f"{OTHER_TRACKS}: {message} another one, or to mix or separate for all of them.")
    counts = {number: None if speech is None else speech.samples for number, speech in spoken.items()}
    return Choice(chosen, decoded[chosen].focus, tuple(notes), counts)


@dataclass(frozen=True, slots=True)
class _Listener:
    """Listens to the tracks of one file until somebody has spoken."""

    isolation: Isolation
    path: Path
    limits: DecodeLimits
    vad: Vad

    def speech_on(self, number: int) -> Speech | None:
        """Return how much somebody speaks on track *number*; None: it cannot be decoded."""
        try:
            with self._decoding(number, separate=False) as audio:
                channels = audio.probe.channels
                if channels <= STEREO:
                    counts = _Counts(self.vad, 1)
                    for samples in audio:
                        counts.add(samples[:, np.newaxis])
                        if counts.spoken[0] >= SPEAKS:
                            break
                    if counts.spoken[0] >= SPEAKS or channels == 1:
                        return Speech(counts.spoken[0])
            with self._decoding(number, separate=True) as audio:
                return self._speech_on_channels(audio)
        except AudioTooLong:
            return Speech(0)
        except (InvalidAudio, UndecodableAudio, DecodeTimeout):
            return None

    def _decoding(self, number: int, *, separate: bool) -> AbstractContextManager[Decoding]:
        return self.isolation.decoding(self.path, self.limits, track=number, separate=separate, sparse=True)

    def _speech_on_channels(self, audio: Decoding) -> Speech:
        """Listen to each channel and to the mix, until somebody has spoken in the centre, or without one in the mix.

        Where that never happens, the channel with by far the most speech is chosen, if the mix drowns it.
        """
        channels, centre = audio.probe.channels, centre_of(audio.probe.layout)
        bass = bass_of(audio.probe.layout)
        counts, mixing = _Counts(self.vad, channels + 1), ChannelMix(channels)
        for samples in audio:
            if bass is not None and not is_bass(samples[:, bass]):
                bass = centre = None  # it is a microphone like the others, whatever the order is called
            counts.add(np.concatenate((samples, mixing.add(samples)[:, np.newaxis]), axis=1))
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

    def __init__(self, vad: Vad, sounds: int) -> None:
        self._each = [(Framer(), vad.stream()) for _ in range(sounds)]
        self.spoken = [0] * sounds

    def add(self, samples: Samples) -> None:
        """Take the next samples, of shape (n, sounds). Sounds that are silent are passed over."""
        for sound, (framer, detect) in enumerate(self._each):
            own = np.ascontiguousarray(samples[:, sound])
            if float(np.abs(own).max()) >= SILENT:
                speech = detect(framer.windows_of(own))
                self.spoken[sound] += WINDOW * sum(probability >= IS_SPEECH for probability in speech)


PATIENCE = 10 * RATE
"""A track this far behind counts as silent until its next piece. Fragments of MP4 and clusters of Matroska
have seconds of one track before those of the next."""

AHEAD = RATE // WINDOW
"""The windows, a second, by which the choice among tracks is late until somebody has spoken on one for a second."""


def all_tracks(tracks: Sequence[Track], pieces: Iterable[TrackPiece], *, mixed: bool) -> Iterator[Samples]:
    """Yield all tracks, each as long as the others: of shape (n,) if they are *mixed*, else (n, tracks)."""
    sides, mix = _SideBySide(tracks), TrackMix()
    for block in sides.blocks(pieces):
        yield mix.add(block) if mixed else block


class _SideBySide:
    """All tracks, also those that cannot be decoded, which are silent."""

    def __init__(self, tracks: Sequence[Track]) -> None:
        usable = {track.number for track in by_preference(tracks)}
        self._buffers = {track.number: _TrackBuffer(left_behind=track.number not in usable) for track in tracks}

    def blocks(self, pieces: Iterable[TrackPiece]) -> Iterator[Samples]:
        """Yield what is known of all tracks, of shape (n, tracks)."""
        buffers = self._buffers.values()
        error: PipelineError | None = None
        try:
            for piece in pieces:
                buffer = self._buffers[piece.track]
                for samples in buffer.steps(piece):
                    buffer.put(samples)
                    _leave_behind(buffers)
                    yield from self._take(min(one.end for one in buffers if not one.left_behind))
        except PipelineError as caught:
            error = caught  # what came before is transcribed
        yield from self._take(max(buffer.end for buffer in buffers))
        if error is not None:
            raise error

    def _take(self, end: int) -> Iterator[Samples]:
        if any(buffer.start < end for buffer in self._buffers.values()):
            yield np.stack([buffer.take(end) for buffer in self._buffers.values()], axis=1)


class SpokenTrack:
    """Follows one track, and notices whether somebody speaks on the others.

    Until somebody has spoken for a second on a track, the first in order on which somebody speaks is chosen at any
    moment; for that the samples come a second late. After that it stays chosen, without delay.
    """

    def __init__(self, tracks: Sequence[Track], vad: Vad | None, language: str | None = None) -> None:
        """Tracks in the *language* that is spoken are preferred. Without *vad* the usual track is chosen."""
        self._tracks = {track.number: _ListenedTrack(track, vad) for track in by_preference(tracks, language)}
        self._order = list(self._tracks.values())
        self._chosen = self._order[0]
        self._settled = False
        if vad is None or len(self._order) == 1:
            self._settle()
        self._blind = vad is None and len(self._order) > 1

    @property
    def notes(self) -> Sequence[str]:
        """The notes about tracks that were not transcribed."""
        name = self._chosen.track.name
        if self._blind:
            message = f"Track {name} of {len(self._order)} was transcribed. Set track for another one."
            return [f"{OTHER_TRACKS}: {message}"]
        missed = [f"{one.track.name}, {seconds(one.missed):.0f} s" for one in self._order if one.reported]
        message = f"Track {name} was transcribed. Somebody also spoke on track {'; track '.join(missed)}. {_ADVICE}"
        return [f"{OTHER_TRACKS}: {message}"] if missed else []

    def follow(self, pieces: Iterable[TrackPiece]) -> Iterator[Samples | str]:
        """Yield the samples of the chosen track, and at once a note when somebody has spoken on another track."""
        error: PipelineError | None = None
        try:
            for piece in pieces:
                one = self._tracks[piece.track]
                for samples in one.steps(piece):
                    one.put(samples)
                    yield from self._advance()
        except PipelineError as caught:
            error = caught  # what came before is transcribed
        for one in self._order:
            one.flush()
        yield from self._advance(ended=True)
        if error is not None:
            raise error

    def _advance(self, *, ended: bool = False) -> Iterator[Samples | str]:
        taken: list[Samples] = []
        while not self._settled and self._is_decidable(ended=ended):
            taken.append(self._choose())
        if self._settled:
            taken.append(self._chosen.take(self._chosen.end))
            for one in self._order:
                if one is not self._chosen:
                    one.miss(one.end)
        if taken and len(samples := np.concatenate(taken)):
            yield samples
        for one in self._order:
            if one.missed >= SPEAKS and not one.reported:
                one.reported = True
                message = (
                    f"Somebody speaks on track {one.track.name}, but track {self._chosen.track.name} is transcribed."
                )
                yield f"{OTHER_TRACKS}: {message} {_ADVICE}"

    def _is_decidable(self, *, ended: bool) -> bool:
        """Return whether enough is known of the tracks to choose the next window."""
        _leave_behind(self._order)
        at, furthest = self._chosen.start, max(one.end for one in self._order)
        if ended:
            return at < furthest
        end = at + AHEAD * WINDOW
        if self._chosen.end >= end and self._chosen.speaks:
            return True
        return furthest >= end and all(one.end >= end or one.left_behind for one in self._order)

    def _choose(self) -> Samples:
        """Return the next window of the track that is chosen."""
        if not self._chosen.speaks:
            self._chosen = next((one for one in self._order if one.speaks), self._chosen)
        at = self._chosen.start + WINDOW
        self._chosen.spoken += WINDOW * self._chosen.begins_with_speech
        if self._chosen.spoken >= SPEAKS:
            self._settle()
        for one in self._order:
            if one is not self._chosen:
                one.miss(at)
        return self._chosen.take(at)

    def _settle(self) -> None:
        self._settled = True
        self._chosen.detect = None


_NOTHING = np.zeros(0, np.float32)
_ADVICE = "Start again with another track, or with mix or separate for all of them."


class _TrackBuffer:
    """The samples of one track that are not taken yet."""

    def __init__(self, *, left_behind: bool = False) -> None:
        self.left_behind = left_behind  # others do not wait for it
        self.start = self.end = 0  # the positions of what is held
        self.received = 0  # of what came
        self._held: list[Samples] = []

    def steps(self, piece: TrackPiece) -> Iterator[Samples]:
        """Yield the silence before a piece, in seconds, and its samples. Each is put() before the next one.

        What comes too late follows what is held, so it stays late.
        """
        self.left_behind = False
        while (silence := piece.start - self.received) > 0:
            yield np.zeros((min(silence, RATE), *piece.samples.shape[1:]), np.float32)
        yield piece.samples

    def put(self, samples: Samples) -> None:
        """Take the next samples."""
        self.received += len(samples)
        self._hold(samples)

    def take(self, end: int) -> Samples:
        """Return the samples up to the position *end*, with silence in place of those that did not come."""
        if self.end < end:
            self.put(np.zeros(end - self.end, np.float32))
        held = self._held[0] if len(self._held) == 1 else np.concatenate((_NOTHING, *self._held))
        taken, rest = held[: end - self.start], held[end - self.start :]
        self._held, self.start = [rest], end
        return taken

    def _hold(self, samples: Samples) -> None:
        self._held.append(samples)
        self.end += len(samples)


class _ListenedTrack(_TrackBuffer):
    """One track, and where somebody speaks on it."""

    def __init__(self, track: Track, vad: Vad | None) -> None:
        super().__init__()
        self.track = track
        self.spoken = 0  # samples with speech while it was chosen
        self.missed = 0  # samples with speech otherwise
        self.reported = False  # was a note given?
        self._vad = vad
        self.detect = vad.stream() if vad else None  # None: does not listen
        self._framer = Framer()
        self._mix: Mixer | None = None  # of its channels
        self._speech: list[bool] = []  # of the windows from *start* on

    @property
    def begins_with_speech(self) -> bool:
        return any(self._speech[:1])

    @property
    def speaks(self) -> bool:
        """Whether there is speech in the windows on which the choice depends."""
        return any(self._speech[: AHEAD + 1])

    def put(self, samples: Samples) -> None:
        """Take the next samples, of shape (n,) or (n, channels)."""
        self.received += len(samples)
        if samples.ndim > 1:
            detect = self._vad.stream() if self._vad else None
            self._mix = self._mix or live_mix(detect, samples.shape[1], self.track.layout)
            samples = self._mix.add(samples)
        self._hold(samples)

    def flush(self) -> None:
        """Take what the mix still holds."""
        if self._mix is not None:
            self._hold(self._mix.flush())

    def miss(self, end: int) -> None:
        """Take the samples up to *end*, which are not transcribed."""
        windows = (end - self.start) // WINDOW
        self.missed += WINDOW * sum(self._speech[:windows])
        self.take(self.start + windows * WINDOW)

    def take(self, end: int) -> Samples:
        windows = (end - self.start) // WINDOW
        taken = super().take(end)
        del self._speech[:windows]
        return taken

    def _hold(self, samples: Samples) -> None:
        super()._hold(samples)
        if self.detect is not None and len(windows := self._framer.windows_of(samples)):
            silent = float(np.abs(windows).max()) < SILENT
            found = [0.0] * len(windows) if silent else self.detect(windows)
            self._speech += [probability >= IS_SPEECH for probability in found]


def _leave_behind(buffers: Collection[_TrackBuffer]) -> None:
    """Wait no longer for tracks that are far behind."""
    furthest = max(buffer.end for buffer in buffers)
    for buffer in buffers:
        buffer.left_behind |= buffer.end < furthest - PATIENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """One channel of the track that is chosen."""

    number: int  # from 0
    loudest_db: float  # the loudest sustained sound, in dBFS
    copy_of: int | None  # the channel that holds the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What would be transcribed of a file."""

    probe: Probe  # of the track that is chosen
    focus: int | None  # the channel that is used while somebody speaks there, instead of the mix
    speech: dict[int, bool | None]  # by track: whether somebody speaks; None: it cannot be decoded
    sound_s: float  # the length of the sound
    spoken_s: float  # how much of it has speech
    loudest_db: float  # the loudest sustained sound, in dBFS
    speech_db: float | None  # the loudest sustained speech
    channels: tuple[Channel, ...]
    notes: tuple[str, ...]  # "code: message", as in a transcript


def inspect(isolation: Isolation, path: Path, vad: Vad) -> Inspection:
    """Decode a file twice, and say what would be transcribed of it. Raises what Isolation.decoding() raises."""
    level, framer, detect, length = InputLevel(), Framer(), vad.stream(), 0
    with chosen_track(isolation, path, DecodeLimits(), vad) as audio:
        for samples in audio.samples:
            length += len(samples)
            windows = framer.windows_of(samples)
            level.measure(windows, detect(windows))
        probe, choice, focus, notes = audio.decoding.probe, audio.choice, audio.focus, audio.notes
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

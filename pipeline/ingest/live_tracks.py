"""Hears a live container with several audio tracks: the one on which somebody speaks, all mixed, or each as a channel.

The pieces of the tracks come as the container has them: some track may be seconds ahead of others, or have none at all.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np

from pipeline.audio import RATE, WINDOW, Samples, seconds
from pipeline.errors import PipelineError
from pipeline.ingest.focus import IS_SPEECH, SILENT, Mixer, live_mix
from pipeline.ingest.framer import Framer
from pipeline.ingest.mixing import TrackMix
from pipeline.ingest.pieces import TrackPiece
from pipeline.ingest.survey import SPEAKS
from pipeline.ingest.tracks import OTHER_TRACKS, Track, by_preference
from pipeline.ingest.vad import VoiceDetector

PATIENCE = 10 * RATE
"""A track this far behind counts as silent until its next piece. Fragments of MP4 and clusters of Matroska
have seconds of one track before those of the next."""

AHEAD = RATE // WINDOW
"""The windows, a second, by which the choice among tracks is late until somebody has spoken on one for a second."""


def all_tracks(tracks: Sequence[Track], pieces: Iterable[TrackPiece], *, mixed: bool) -> Iterator[Samples]:
    """Yield all tracks, each as long as the others: of shape (n,) if they are *mixed*, else (n, tracks)."""
    sides, mix = _SideBySide(tracks), TrackMix()
    for block in sides.hear(pieces):
        yield mix.add(block) if mixed else block


class _SideBySide:
    """All tracks, also those that cannot be decoded, which are silent."""

    def __init__(self, tracks: Sequence[Track]) -> None:
        usable = {track.number for track in by_preference(tracks)}
        self._buffers = {track.number: _TrackBuffer(left_behind=track.number not in usable) for track in tracks}

    def hear(self, pieces: Iterable[TrackPiece]) -> Iterator[Samples]:
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
            error = caught  # what came before is heard
        yield from self._take(max(buffer.end for buffer in buffers))
        if error is not None:
            raise error

    def _take(self, end: int) -> Iterator[Samples]:
        if any(buffer.start < end for buffer in self._buffers.values()):
            yield np.stack([buffer.take(end) for buffer in self._buffers.values()], axis=1)


class SpokenTrack:
    """Hears one track, and listens whether somebody speaks on the others. Iterate it once.

    Until somebody has spoken for a second on a track, the first in order on which somebody speaks is heard at any
    moment; for that the samples come a second late. After that it is heard for good, as it comes.
    """

    def __init__(self, tracks: Sequence[Track], voice: VoiceDetector | None, language: str | None = None) -> None:
        """Tracks in the *language* that is spoken are preferred. Without *voice* the usual track is heard."""
        self._tracks = {track.number: _HeardTrack(track, voice) for track in by_preference(tracks, language)}
        self._order = list(self._tracks.values())
        self._heard = self._order[0]
        self._settled = False
        if voice is None or len(self._order) == 1:
            self._settle()
        self._blind = voice is None and len(self._order) > 1

    @property
    def notes(self) -> Sequence[str]:
        """What was not heard: "code: message"."""
        name = self._heard.track.name
        if self._blind:
            told = f"Track {name} of {len(self._order)} was transcribed: set track for another one."
            return [f"{OTHER_TRACKS}: {told}"]
        missed = [f"{one.track.name}, {seconds(one.missed):.0f} s" for one in self._order if one.told]
        told = f"Track {name} was transcribed. Somebody also spoke on track {'; track '.join(missed)}: {_ADVICE}"
        return [f"{OTHER_TRACKS}: {told}"] if missed else []

    def hear(self, pieces: Iterable[TrackPiece]) -> Iterator[Samples | str]:
        """Yield the samples that are heard, and at once a note when somebody has spoken on another track."""
        error: PipelineError | None = None
        try:
            for piece in pieces:
                one = self._tracks[piece.track]
                for samples in one.steps(piece):
                    one.put(samples)
                    yield from self._advance()
        except PipelineError as caught:
            error = caught  # what came before is heard
        for one in self._order:
            one.flush()
        yield from self._advance(ended=True)
        if error is not None:
            raise error

    def _advance(self, *, ended: bool = False) -> Iterator[Samples | str]:
        heard: list[Samples] = []
        while not self._settled and self._is_decidable(ended=ended):
            heard.append(self._choose())
        if self._settled:
            heard.append(self._heard.take(self._heard.end))
            for one in self._order:
                if one is not self._heard:
                    one.miss(one.end)
        if heard and len(samples := np.concatenate(heard)):
            yield samples
        for one in self._order:
            if one.missed >= SPEAKS and not one.told:
                one.told = True
                told = f"Somebody speaks on track {one.track.name}, but track {self._heard.track.name} is transcribed"
                yield f"{OTHER_TRACKS}: {told}: {_ADVICE}"

    def _is_decidable(self, *, ended: bool) -> bool:
        """Return whether enough is known of the tracks to choose the next window."""
        _leave_behind(self._order)
        at, furthest = self._heard.start, max(one.end for one in self._order)
        if ended:
            return at < furthest
        end = at + AHEAD * WINDOW
        if self._heard.end >= end and self._heard.speaks:
            return True
        return furthest >= end and all(one.end >= end or one.left_behind for one in self._order)

    def _choose(self) -> Samples:
        """Return the next window of the track that is heard."""
        if not self._heard.speaks:
            self._heard = next((one for one in self._order if one.speaks), self._heard)
        at = self._heard.start + WINDOW
        self._heard.spoken += WINDOW * self._heard.begins_with_speech
        if self._heard.spoken >= SPEAKS:
            self._settle()
        for one in self._order:
            if one is not self._heard:
                one.miss(at)
        return self._heard.take(at)

    def _settle(self) -> None:
        self._settled = True
        self._heard.detect = None


_NOTHING = np.zeros(0, np.float32)
_ADVICE = "start again with another track, or with mix or separate for all of them."


class _TrackBuffer:
    """The samples of one track that are not taken yet."""

    def __init__(self, *, left_behind: bool = False) -> None:
        self.left_behind = left_behind  # others do not wait for it
        self.start = self.end = 0  # the positions of what is held
        self.received = 0  # of what came
        self._held: list[Samples] = []

    def steps(self, piece: TrackPiece) -> Iterator[Samples]:
        """Yield the silence before a piece, in seconds, and its samples. Each is put() before the next one.

        What comes too late follows what is held, so it is heard late.
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


class _HeardTrack(_TrackBuffer):
    """One track, and where somebody speaks on it."""

    def __init__(self, track: Track, voice: VoiceDetector | None) -> None:
        super().__init__()
        self.track = track
        self.spoken = 0  # samples with speech that were heard
        self.missed = 0  # that were not
        self.told = False  # that somebody speaks
        self._voice = voice
        self.detect = voice.stream() if voice else None  # None: does not listen
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
            detect = self._voice.stream() if self._voice else None
            self._mix = self._mix or live_mix(detect, samples.shape[1], self.track.layout)
            samples = self._mix.add(samples)
        self._hold(samples)

    def flush(self) -> None:
        """Take what the mix still holds."""
        if self._mix is not None:
            self._hold(self._mix.flush())

    def miss(self, end: int) -> None:
        """Take the samples up to *end*, which are not heard."""
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

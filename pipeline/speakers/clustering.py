"""Finds how many voices a recording has and what each sounds like, from the turns of all its windows.

Theory. The segmentation model looks at windows of ten seconds and finds up to three local voices in each. The encoder
turns each turn of a local voice into a vector; the distance of two turns is one minus the cosine of their vectors.
Clustering joins turns into people:

1. Short turns have unreliable vectors, so only turns of a certain length take part.
2. The first model knows something about neighbours. Two local voices of one window are two people, so their distance is
   set to SAME_WINDOW, more than any sound can reach.
3. Average linkage: the two groups with the lowest mean distance are merged, again and again, until none are near
   enough. The mean of many turns says more than that of one: two groups that both speak for FOR_SURE_S are two people
   from APART_FOR_SURE on. Where one of them speaks for UNSURE_S or less, only from APART on: it may be a shout.
4. A group counts as a voice if it speaks for FOUNDING_S and for a certain share of the recording. The others are
   dropped; diarizer.py gives their turns to the voices that they resemble most.
5. One person who whispers, or goes on over a telephone, may sound as different as two people do who sound alike. But
   two people answer and interrupt each other, and one person does not. So unless two speak at once (OVERLAP) or the
   voice changes often (TURNS), all voices together are one person's even if they are less alike (ALONE). The first
   model hears two at once in one person too, in a room or over a telephone, so voices that sound almost the same stay
   one person's (AT_ONCE). A turn that is played again (REPLAYED) says nothing new: it adds neither time nor changes.
6. While a stream goes on, one person stays one until a second voice is confirmed: it must speak for SECOND_S, longer
   the longer the first has spoken alone, and twice as long if it sounds almost like the first. A wrong second label
   disturbs a reader more than a right one that comes some seconds later. At the end this rule does not apply.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import RATE
from pipeline.speakers.models import SIZE, STEP, VOICES, unit
from pipeline.speakers.windows import SPEAKING, LocalTurn, Window, average

Array = NDArray[np.float32]
Spans: TypeAlias = Sequence[tuple[int, int]]
"""From and to which frames of the recording."""

APART, APART_FOR_SURE = 0.33, 0.2
"""Groups with at least this mean cosine distance are two people: the first number if one of them speaks little, the
second if both speak much."""

UNSURE_S, FOR_SURE_S = 4.0, 12.0
"""A group that speaks for at most the first time speaks little, from the second on much. Between them the limit of the
distance falls evenly. The group that speaks less decides."""

SAME_WINDOW = 2.0
"""The distance of two local voices of one window."""

MOST_TURNS = 2000
"""The most turns that are compared, whose distances take 16 MB. From more turns this many are chosen evenly."""

LONG_TURN_S = 2.0
"""The shortest turn that is compared; in short recordings it may be as short as SHORT_TURN_S."""

SHORT_TURN_S = 0.8

FOUNDING_S = 2.0
"""The shortest time that a voice must speak in the recording. A cut-off word or a shout often differs so much from the
other speech of its speaker that by distance it would be a second person."""

DOUBLE = 0.8
"""In a stream a second voice with this cosine to the first must speak twice as long to be confirmed."""

SECOND_S = (3.0, 6.0)
"""In a stream a second voice is confirmed when it has spoken a quarter as long as the first, but at least and at most
these seconds."""

ALONE, TURNS = (0.68, 0.85), (2, 8)
"""All voices are one person if their cosine with the first one is at least ALONE: the first number if the voice changes
as often as the first number of TURNS, and so on, evenly between them. With n voices each change counts n - 1 times."""

OVERLAP, AT_ONCE = 0.045, (0.85, 0.87)
"""If two local voices speak at once in this share of all speech, AT_ONCE holds instead of ALONE."""

REPLAYED = 0.94
"""A turn with this cosine to an earlier one is taken for the same recording played again. People hardly ever say two
turns so much alike."""

_SECOND = 59  # frames
_TURN_SHARE = 0.02  # of all speech, as the windows show it: where this is less than LONG_TURN_S
_GROUP_SHARE = 0.02  # of all speech: a person who speaks less is joined to the person most alike
_LEAST_TURNS_S = (0.5, 0.0)  # what suffices where no turn is long enough


@dataclass(frozen=True, slots=True)
class _Point:
    window: int
    voice: int
    seconds: float
    embedding: Array
    spans: Spans


def find_voices(
    windows: Sequence[Window],
    most: int,
    *,
    founding_s: float = FOUNDING_S,
    provisional: bool = False,
    several: bool = False,
) -> Array:
    """Return a unit vector for each of at most *most* voices, of shape (voices, SIZE), in order of their speaking time.

    There is no row if nobody speaks, and none for a voice that speaks for less than *founding_s*, unless no voice
    speaks longer. Of windows that overlap almost completely only one is used. A *provisional* result, of a stream that
    goes on, has one voice until a second is confirmed. *several* says that surely more than one person speaks.
    """
    windows = _spread(windows)
    spoken_s = sum(turn.seconds for window in windows for turn in window.turns)
    long_s = min(LONG_TURN_S, max(SHORT_TURN_S, spoken_s * _TURN_SHARE))
    points: list[_Point] = []
    for least_s in (long_s, *_LEAST_TURNS_S):
        points = points or _points(windows, least_s)
    if not points:
        return np.zeros((0, SIZE), np.float32)
    points = points[:: -(-len(points) // MOST_TURNS)]
    embeddings = np.array([point.embedding for point in points])
    seconds = np.array([point.seconds for point in points], np.float32)
    groups = join_groups(_distances(points, embeddings), [point.spans for point in points], most)
    spoken = np.bincount(groups, weights=seconds)
    fresh = _first_plays(points, embeddings)
    spans = _spans_of_groups([point.spans if new else () for point, new in zip(points, fresh, strict=True)], groups)
    lasting = np.array([_lasting_s(own) for own in spans])
    founding = np.flatnonzero(
        (spoken >= min(spoken.max(), max(long_s, spoken.sum() * _GROUP_SHARE)))
        & (lasting >= min(lasting.max(), founding_s))
    )
    founding = founding[np.argsort(-spoken[founding], kind="stable")]
    voices = unit(np.array([(embeddings * seconds[:, None])[groups == group].sum(axis=0) for group in founding]))
    if len(voices) > 1 and not several:
        one = _are_one_person(voices, [spans[group] for group in founding], windows)
        one |= provisional and not _second_is_confirmed(voices, lasting[founding])
        voices = voices[:1] if one else voices
    return voices


def _are_one_person(voices: Array, spans: Sequence[Spans], windows: Sequence[Window]) -> bool:
    """Return whether the voices are alike, for how often one follows the other and whether they speak at once."""
    changes = _changes(spans) * (len(voices) - 1)  # three voices are seldom one person's
    least = np.interp(changes, TURNS, ALONE if _overlap(windows) < OVERLAP else AT_ONCE)
    return bool((voices[1:] @ voices[0] >= least).all())


def _overlap(windows: Sequence[Window]) -> float:
    """Return the share of speech in which the first model finds two local voices."""
    speaking = np.concatenate([(window.speech > SPEAKING).sum(axis=1) for window in windows])
    return int(np.count_nonzero(speaking > 1)) / max(1, int(np.count_nonzero(speaking)))


def _changes(spans: Sequence[Spans]) -> int:
    """Return how often the voice changes, second by second."""
    spoken = np.zeros((len(spans), max(after for own in spans for _, after in own) // _SECOND + 1))
    for counts, own in zip(spoken, spans, strict=True):
        for start, after in own:
            counts[start // _SECOND : after // _SECOND + 1] += 1
    speakers = spoken.argmax(axis=0)[spoken.any(axis=0)]
    return int(np.count_nonzero(np.diff(speakers)))


def _second_is_confirmed(voices: Array, lasting: NDArray[np.float64]) -> bool:
    """Return whether a voice other than the first, which speaks most, has spoken for long enough."""
    least_s = np.clip(lasting[0] / 4, *SECOND_S)
    return bool((lasting[1:] >= np.where(voices[1:] @ voices[0] < DOUBLE, least_s, 2 * least_s)).any())


def _spread(windows: Sequence[Window]) -> list[Window]:
    """Return the first window of each place, and the last window."""
    return [
        window
        for before, window in zip([None, *windows], windows, strict=False)
        if before is None or window.place > before.place or window is windows[-1]
    ]


def _points(windows: Sequence[Window], least_s: float) -> list[_Point]:
    """Return the turns of at least *least_s*, and the others of a local voice as one where it has no such turn."""
    points: list[_Point] = []
    for index, window in enumerate(windows):
        for voice in range(VOICES):
            turns = window.of_voice(voice)
            long = [turn for turn in turns if turn.seconds >= least_s]
            points += [_point(index, window, [turn], turn.embedding) for turn in long]
            if turns and not long and sum(turn.seconds for turn in turns) >= least_s:
                points.append(_point(index, window, turns, average(turns)))
    return points


def _point(index: int, window: Window, turns: Sequence[LocalTurn], embedding: Array) -> _Point:
    spans = tuple((window.start + turn.first, window.start + turn.after) for turn in turns)
    return _Point(index, turns[0].voice, sum(turn.seconds for turn in turns), embedding, spans)


def _lasting_s(spans: Iterable[tuple[int, int]]) -> float:
    """Return the seconds that the spans cover. They may overlap, because windows do."""
    frames, reached = 0, 0
    for start, after in sorted(spans):
        frames += max(0, after - max(start, reached))
        reached = max(reached, after)
    return frames * STEP / RATE


def _first_plays(points: Sequence[_Point], embeddings: Array) -> NDArray[np.bool_]:
    """Return for each point whether it sounds otherwise than all that end before it begins, (n,)."""
    starts = np.array([point.spans[0][0] for point in points])
    ends = np.array([point.spans[-1][1] for point in points])
    before = ends[None, :] <= starts[:, None]
    first: NDArray[np.bool_] = np.where(before, embeddings @ embeddings.T, -1).max(axis=1) < REPLAYED
    return first


def _distances(points: Sequence[_Point], embeddings: Array) -> Array:
    distances: Array = 1 - embeddings @ embeddings.T
    window, voice = np.array([(point.window, point.voice) for point in points]).T
    distances[(window[:, None] == window) & (voice[:, None] != voice)] = SAME_WINDOW
    return distances


def join_groups(distances: Array, spans: Sequence[Spans], most: int) -> NDArray[np.intp]:
    """Return the group, 0, 1, ..., of each turn, at most *most*, from the *distances* of all pairs, (n, n).

    Up to APART_FOR_SURE it does not matter for how long groups speak. So these merges, which are most of them, are left
    to average_linkage(), which is fast.
    """
    groups = average_linkage(distances.copy(), APART_FOR_SURE)
    member = np.eye(groups.max() + 1, dtype=np.float32)[groups]
    sizes = member.sum(axis=0)
    means = (member.T @ distances @ member / np.outer(sizes, sizes)).astype(np.float32)
    group_spans = _spans_of_groups(spans, groups)
    lasting = np.array([_lasting_s(own) for own in group_spans])
    while len(sizes) > 1:
        apart = np.interp(np.minimum.outer(lasting, lasting), (UNSURE_S, FOR_SURE_S), (APART, APART_FOR_SURE))
        np.fill_diagonal(means, np.inf)
        near = np.where(means < apart, means, np.inf)
        if np.isinf(near).all():
            if len(sizes) <= most:
                break
            near = means
        target, gone = sorted(divmod(int(near.argmin()), len(sizes)))
        _merge(means, sizes, target, gone)
        group_spans[target] += group_spans.pop(gone)
        lasting[target] = _lasting_s(group_spans[target])
        means = np.delete(np.delete(means, gone, axis=0), gone, axis=1)
        lasting, sizes = np.delete(lasting, gone), np.delete(sizes, gone)
        groups[groups == gone] = target
        groups[groups > gone] -= 1
    return groups


def _spans_of_groups(spans: Sequence[Spans], groups: NDArray[np.intp]) -> list[list[tuple[int, int]]]:
    of_groups: list[list[tuple[int, int]]] = [[] for _ in range(groups.max() + 1)]
    for own, group in zip(spans, groups, strict=True):
        of_groups[group] += own
    return of_groups


def average_linkage(distances: Array, apart: float) -> NDArray[np.intp]:
    """Merge the two nearest groups until all are *apart*; return the group, 0, 1, ..., of each point.

    *distances*, of shape (n, n), is overwritten. The chain of nearest neighbours (Murtagh 1983) merges any two groups
    that are each other's nearest, in whatever order it finds them. The merges are those of the plain algorithm, but the
    time grows with n * n and not with n * n * n. Along a chain distances fall, and merges of others never lower them:
    if the last group of a chain is apart from all others, so are all of the chain for good.
    """
    np.fill_diagonal(distances, np.inf)
    sizes = np.ones(len(distances))
    groups = np.arange(len(distances))
    unfinished = set(range(len(distances)))
    while unfinished:
        chain = [next(iter(unfinished))]
        while chain:
            last = chain[-1]
            nearest = int(distances[last].argmin())
            if distances[last, nearest] >= apart:
                unfinished -= set(chain)
                break
            if len(chain) > 1 and distances[last, chain[-2]] <= distances[last, nearest]:
                target = chain[-2]
                del chain[-2:]
                _merge(distances, sizes, target, last)
                groups[groups == last] = target
                unfinished.discard(last)
            else:
                chain.append(nearest)
    return np.unique(groups, return_inverse=True)[1]


def _merge(distances: Array, sizes: NDArray[np.floating], target: int, gone: int) -> None:
    joined = (distances[target] * sizes[target] + distances[gone] * sizes[gone]) / (sizes[target] + sizes[gone])
    joined[target] = np.inf
    distances[target] = distances[:, target] = joined
    distances[gone] = distances[:, gone] = np.inf
    sizes[target] += sizes[gone]
    sizes[gone] = 0

"""What people changed in a transcript: their requests become entries, and entries change what was recognised. Pure.

    changes = Correcting(past.said, past.labels, corrections).changes_of(requested, redact)   # raises ChangeRefused
    chunks = corrected_chunks(past.chunks(), past.said, corrections)

Nothing that was recognised is overwritten. Words keep the numbers that they have at revision 0, and a Correction of the
timeline names them by these. It says what stands there now, with all times, so that documents, live readers and later
corrections need nothing else: to take a revision back is another correction, which says what stood there before.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from rapidfuzz.distance import Levenshtein

from pipeline.languages import comparable, graphemes, is_unspaced
from pipeline.text.options import TextOptions, TextSettings
from pipeline.text.stage import TextStage
from pipeline.timeline import Change, Correction, SpeakerName, SpeakersJoined, StoredWord, WordsGiven, WordsReplaced
from pipeline.words import Chunk, Segment, Transcript, Word, join_words, speaker_on

Said = Sequence[tuple[Word, int | None]]
"""Every recognised word with its channel, by number."""

Redact = Callable[[Sequence[Word], Sequence[Word], Sequence[Word]], Sequence[Word]]
"""Hides what the job hides: words before, new words, words after; returns what may stand for the new ones."""


class ChangeRefused(Exception):
    """A change cannot be made. *index* is its place in the request; the message says what can be done."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index = index


class RevertRefused(Exception):
    """A revision cannot be taken back, because a later one lies over it, or there is none of this number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRequest:
    """Words *first* to *last*, both included, are to read *text*; none if it is empty."""

    first: int
    last: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeakerRequest:
    """Words *first* to *last*, both included, were said by *speaker*."""

    first: int
    last: int
    speaker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRequest:
    """Documents call *speaker* by *name*; by the label again if it is empty."""

    speaker: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """*speaker* is the same person as *into*."""

    speaker: str
    into: str


Request = TextRequest | SpeakerRequest | NameRequest | JoinRequest


@dataclass(slots=True)
class Correcting:
    """A transcript as the corrections so far have it, by the numbers of revision 0."""

    said: Said
    labels: Sequence[str | None]  # of each word, by voice
    corrections: Sequence[Correction]
    written: dict[int, tuple[Word, ...]] = field(init=False, default_factory=dict)  # what stands for changed words
    ranges: dict[int, int] = field(init=False, default_factory=dict)  # of the changed texts: the last by the first
    speakers: dict[int, str] = field(init=False, default_factory=dict)  # by a person
    names: dict[str, str] = field(init=False, default_factory=dict)
    joined: dict[str, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for correction in self.corrections:
            self.apply(correction.changes)

    def apply(self, changes: Iterable[Change]) -> None:
        for change in changes:
            match change:
                case WordsReplaced(first, last, words):
                    for number in range(first, last + 1):
                        self.written[number] = ()
                        self.ranges.pop(number, None)
                    self.written[first] = tuple(stored.word for stored in words)
                    self.ranges[first] = last
                case WordsGiven(first, last, speaker):
                    for number in range(first, last + 1):
                        if speaker:
                            self.speakers[number] = speaker
                        else:
                            self.speakers.pop(number, None)
                case SpeakerName(speaker, name):
                    self.names[speaker] = name
                case SpeakersJoined(speaker, into):
                    self.joined[speaker] = into

    def words_at(self, number: int) -> tuple[Word, ...]:
        """The words that stand for the word *number* now, with the speaker that a person gave them."""
        words = self.written.get(number)
        words = (self.said[number][0],) if words is None else words
        speaker = self.speakers.get(number)
        return words if speaker is None else tuple(replace(word, speaker=speaker) for word in words)

    def speaker_at(self, number: int) -> str | None:
        """The label of who said the word *number*, before joining."""
        return self.speakers.get(number) or self.labels[number] or speaker_on(self.said[number][1])

    def label_of(self, speaker: str) -> str:
        """Return the label that *speaker*, a label or a name, has after joining."""
        label = next((label for label, name in self.names.items() if name == speaker), speaker)
        seen = set()
        while label in self.joined and label not in seen:
            seen.add(label)
            label = self.joined[label]
        return label

    def name_of(self, speaker: str) -> str:
        """Return what documents call *speaker*."""
        label = self.label_of(speaker)
        return self.names.get(label) or label

    def changes_of(self, requests: Sequence[Request], redact: Redact) -> tuple[Change, ...]:
        """Return the changes that make what is requested, and apply them.

        Raises ChangeRefused. The object is then of no more use.
        """
        made: list[Change] = []
        for index, request in enumerate(requests):
            whole = len(self.said)
            if isinstance(request, TextRequest | SpeakerRequest) and not 0 <= request.first <= request.last < whole:
                raise ChangeRefused(index, f"There are words 0 to {whole - 1}: first to last must lie within.")
            change: Change
            match request:
                case TextRequest(first=first, last=last, text=text):
                    if (wider := self._partial_overlap(first, last)) is not None:
                        raise ChangeRefused(
                            index, f"Words {wider[0]} to {wider[1]} were changed together: cover them all."
                        )
                    words = self._written_anew(first, last, text, redact)
                    change = WordsReplaced(first, last, tuple(map(StoredWord.of, words)))
                case SpeakerRequest(first=first, last=last, speaker=speaker):
                    change = WordsGiven(first, last, self.label_of(speaker))
                case NameRequest(speaker=speaker, name=name):
                    self._check_known(index, speaker)
                    change = SpeakerName(self.label_of(speaker), name)
                case JoinRequest(speaker=speaker, into=into):
                    self._check_known(index, speaker)
                    self._check_known(index, into)
                    if self.label_of(speaker) == self.label_of(into):
                        raise ChangeRefused(index, f"{speaker} and {into} are the same already.")
                    change = SpeakersJoined(self.label_of(speaker), self.label_of(into))
            made.append(change)
            self.apply([change])
        return tuple(made)

    def known_speakers(self) -> list[str]:
        """The labels of all who speak, in the order of their first words."""
        labels = (self.speaker_at(number) for number in range(len(self.said)))
        return list(dict.fromkeys(label for label in labels if label))

    def _check_known(self, index: int, speaker: str) -> None:
        known = self.known_speakers()
        if self.label_of(speaker) not in {self.label_of(one) for one in known}:
            raise ChangeRefused(index, f"Nobody is called {speaker!r}; speakers are {', '.join(known) or 'not known'}.")

    def _partial_overlap(self, first: int, last: int) -> tuple[int, int] | None:
        """An earlier changed range that is neither within *first* to *last* nor apart from it."""
        over = (
            (start, end)
            for start, end in self.ranges.items()
            if start <= last and end >= first and not first <= start <= end <= last
        )
        return next(over, None)

    def _written_anew(self, first: int, last: int, text: str, redact: Redact) -> list[Word]:
        """The words of *text* in place of *first* to *last*: with kept times where they stay the same."""
        old = [word for number in range(first, last + 1) for word in self.words_at(number)]
        before = [word for number in range(max(0, first - NEAR), first) for word in self.words_at(number)]
        after = [
            word for number in range(last + 1, min(len(self.said), last + 1 + NEAR)) for word in self.words_at(number)
        ]
        begin, end = self.said[first][0].start, max(self.said[number][0].end for number in range(first, last + 1))
        timed = timed_words(text, old, begin=begin, end=end)
        shown = list(redact(before, timed, after))
        recognised = join_words(self.said[number][0] for number in range(first, last + 1))
        secret = any(self.said[number][0].redacted for number in range(first, last + 1))
        shown = [word if word in old else replace(word, corrected=True) for word in shown]
        for at, word in enumerate(shown):
            if word.corrected:
                shown[at] = replace(word, heard=None if secret or word.redacted else recognised)
                break
        return [replace(word, speaker=None) for word in shown]


NEAR = 16
"""How many words around a change are read with it, to find what must be hidden."""


def effective_corrections(corrections: Sequence[Correction]) -> list[Correction]:
    """Return the corrections that count: those that nobody took back, or whose taking back was taken back."""
    gone: set[int] = set()  # later revisions decide first
    for one in reversed(corrections):
        if one.reverts is not None and one.revision not in gone:
            gone.add(one.reverts)
    return [one for one in corrections if one.reverts is None and one.revision not in gone]


def reverted(
    said: Said, labels: Sequence[str | None], corrections: Sequence[Correction], revision: int
) -> tuple[Change, ...]:
    """Return the changes that take *revision* back: what would stand there if it had never been made.

    Raises RevertRefused if a later revision changed the same words, speakers or names.
    """
    by_revision = {one.revision: one for one in corrections}
    gone = {one.reverts for one in corrections if one.reverts is not None}
    target = by_revision.get(revision)
    if target is None or revision in gone - {one.revision for one in effective_corrections(corrections)}:
        raise RevertRefused(f"There is no revision {revision} that could be taken back.")
    while target.reverts is not None:  # what it took back comes again
        target = by_revision[target.reverts]
    for other in effective_corrections(corrections):
        if other.revision > revision and any(_meet(a, b) for a in target.changes for b in other.changes):
            raise RevertRefused(f"Revision {other.revision} lies over it: take that one back first.")
    without = Correction(len(corrections) + 1, "", (), revision)
    rest = Correcting(said, labels, effective_corrections([*corrections, without]))
    return tuple(change for one in target.changes for change in _restored(one, rest))


def _restored(change: Change, rest: Correcting) -> Iterator[Change]:
    match change:
        case WordsReplaced(first, last):
            number = first
            while number <= last:
                end = rest.ranges.get(number, number)
                words = tuple(StoredWord.of(replace(word, speaker=None)) for word in rest.words_at(number))
                yield WordsReplaced(number, end, words)
                number = end + 1
        case WordsGiven(first, last):
            for number in range(first, last + 1):
                yield WordsGiven(number, number, rest.speakers.get(number, ""))
        case SpeakerName(speaker):
            yield SpeakerName(speaker, rest.names.get(speaker, ""))
        case SpeakersJoined(speaker):
            yield SpeakersJoined(speaker, rest.joined.get(speaker, speaker))


def _meet(a: Change, b: Change) -> bool:
    """Whether two changes are about the same: words, who said them, or a speaker."""
    if type(a) is not type(b):
        return False
    if isinstance(a, WordsReplaced | WordsGiven) and isinstance(b, WordsReplaced | WordsGiven):
        return a.first <= b.last and b.first <= a.last
    return (
        isinstance(a, SpeakerName | SpeakersJoined)
        and isinstance(b, SpeakerName | SpeakersJoined)
        and a.speaker == b.speaker
    )


# --- text to timed words


def tokens_of(text: str) -> list[tuple[str, bool]]:
    """Return the words of *text*, each with whether a space belongs before it, cut as recognised words are.

    Scripts without spaces are cut between graphemes; marks stay with what they follow.
    """
    found: list[tuple[str, bool]] = []
    for part in text.split():
        before = ""  # the last sign of the part
        for sign in graphemes(part):
            unspaced = is_unspaced(sign)
            if not before or ((unspaced or is_unspaced(before)) and comparable(sign)):
                found.append((sign, not before and (bool(found) or not unspaced)))
            else:
                found[-1] = (found[-1][0] + sign, found[-1][1])
            before = sign
    return found


def timed_words(text: str, old: Sequence[Word], *, begin: int, end: int) -> list[Word]:
    """Return *text* as words within *begin* to *end*.

    Words that stay as they are in *old* keep their times. New ones share the time of those that they replace, by
    their lengths; inserted ones the gap between their neighbours.
    """
    tokens = tokens_of(text)
    made: list[Word] = []
    language = next((word.language for word in old if word.language), None)
    reached = min([begin, *(word.start for word in old)])
    until = max([end, *(word.end for word in old)])
    blocks = Levenshtein.opcodes(
        [comparable(word.text) or word.text for word in old], [comparable(token) or token for token, _ in tokens]
    )
    for same, run in groupby(blocks, key=lambda block: block.tag == "equal"):
        run_of = list(run)
        kept = old[run_of[0].src_start : run_of[-1].src_end]
        new = tokens[run_of[0].dest_start : run_of[-1].dest_end]
        if same:
            made += [
                word if word.text == token else replace(word, text=token, spaced=spaced, heard=None)
                for word, (token, spaced) in zip(kept, new, strict=True)
            ]
        elif new:
            start = kept[0].start if kept else (made[-1].end if made else reached)
            following = old[run_of[-1].src_end].start if run_of[-1].src_end < len(old) else until
            made += _shared(new, start, kept[-1].end if kept else max(start, following), language)
    return made


def _shared(tokens: Sequence[tuple[str, bool]], start: int, stop: int, language: str | None) -> Iterator[Word]:
    """Yield words that share the time from *start* to *stop* by their lengths."""
    whole, at = sum(len(token) for token, _ in tokens), 0
    for token, spaced in tokens:
        begin = start + (stop - start) * at // whole
        at += len(token)
        yield Word(token, begin, start + (stop - start) * at // whole, 1.0, spaced, language=language)


# --- documents


def without_texts(corrections: Iterable[Correction]) -> list[Correction]:
    """Return *corrections* without changed texts, so that words keep the numbers of what was recognised."""
    kept = ((one, [change for change in one.changes if not isinstance(change, WordsReplaced)]) for one in corrections)
    return [Correction(one.revision, one.by, tuple(changes), one.reverts) for one, changes in kept]


def corrected_chunks(chunks: Sequence[Chunk], state: Correcting) -> list[Chunk]:
    """Return *chunks* of the recognised words with what people wrote in their place, and who they say spoke."""
    numbers = {
        channel: iter([number for number, (_, one) in enumerate(state.said) if one == channel])
        for channel in {channel for _, channel in state.said}
    }
    made = []
    for chunk in chunks:
        segments = []
        for segment in chunk.segments:
            words = [word for _ in segment.words for word in state.words_at(next(numbers[segment.channel]))]
            if words:
                segments.append(replace(segment, words=tuple(words)))
        made.append(replace(chunk, segments=tuple(segments)))
    return made


def by_people(transcript: Transcript, state: Correcting) -> Transcript:
    """Return *transcript* with segments cut where a person gave words to somebody, and speakers joined and named."""
    turns = transcript.turns
    if turns is not None:
        turns = tuple(replace(turn, speaker=state.name_of(turn.speaker)) for turn in turns)
    return replace(transcript, segments=tuple(people_segments(transcript.segments, state)), turns=turns)


def people_segments(segments: Iterable[Segment], state: Correcting) -> list[Segment]:
    """Return *segments* cut where a person gave words to somebody, and speakers joined and named."""
    found: list[Segment] = []
    for segment in segments:
        for given, words in groupby(segment.words, key=lambda word: word.speaker):
            speaker = given or segment.speaker
            name = None if speaker is None else state.name_of(speaker)
            voice = None if name == speaker_on(segment.channel) else name
            found.append(replace(segment, words=tuple(words), voice=voice))
    return found


def names_given(corrections: Iterable[Correction]) -> Mapping[str, str]:
    """Return the names that people gave speakers, by label."""
    state = Correcting((), (), list(corrections))
    return {label: name for label, name in state.names.items() if name}


def redaction_of(options: TextOptions, settings: TextSettings, language: str | None) -> Redact:
    """Return what hides typed words as the job hides spoken ones, with the words around them."""

    def redact(before: Sequence[Word], words: Sequence[Word], after: Sequence[Word]) -> Sequence[Word]:
        if not options.redact or not words:
            return words
        hidden = TextOptions(redact=options.redact, phone_region=options.phone_region)
        stage = TextStage(hidden, earlier=before, patient=True, settings=settings, language=language)
        shown = [word for one in [*words, *after] for word, _ in stage.add(one, 0)]
        shown += [word for word, _ in stage.release()]
        begin, end = words[0].start, words[-1].end
        return [
            word
            for word in shown
            if any(word is one for one in words) or (word.redacted and word.start <= end and word.end >= begin)
        ]

    return redact

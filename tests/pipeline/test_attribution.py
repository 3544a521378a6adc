"""Tests of attribution.py: every word gets one speaker, and segments are cut where the speaker changes."""

from hypothesis import given
from hypothesis import strategies as st

from pipeline.attribution import SpeakerTimes, by_speaker, number_speakers
from pipeline.audio import RATE
from pipeline.documents.assemble import assemble
from pipeline.documents.formats import Heading, service_v1, srt, txt, vtt
from pipeline.words import UNNAMED, Chunk, Segment, SpeakerTurn, Transcript, Word, words_in_time


def words(*times: tuple[float, float]) -> tuple[Word, ...]:
    return tuple(Word(f"w{n}", round(a * RATE), round(b * RATE), 0.5) for n, (a, b) in enumerate(times))


def segment(*times: tuple[float, float], channel: int | None = None) -> Segment:
    return Segment(words(*times), -0.5, 0.1, channel)


def turn(speaker: str, start: float, end: float, channel: int | None = None) -> SpeakerTurn:
    return SpeakerTurn(speaker, round(start * RATE), round(end * RATE), channel)


def test_a_word_is_of_whoever_speaks_most_of_it_and_else_of_the_nearest():
    times = SpeakerTimes([turn("A", 0, 2), turn("B", 1.5, 3), turn("A", 10, 11)])
    spoken = words((0, 1), (1.4, 1.9), (1.8, 2.9), (3.1, 3.2), (9, 9.5), (12, 13), (2.5, 2.5), (3, 3))
    assert [times.speaker_of(word) for word in spoken] == ["A", "A", "B", "B", "A", "A", "B", "B"]
    assert SpeakerTimes([]).speaker_of(spoken[0]) is None


turns_lists = st.lists(
    st.tuples(st.sampled_from("ABC"), st.integers(0, 60), st.integers(1, 30)).map(
        lambda one: turn(one[0], one[1], one[1] + one[2])
    ),
    min_size=1,
    max_size=12,
).map(lambda turns: sorted(turns, key=lambda one: one.start))


@given(turns_lists, st.integers(0, 100), st.integers(0, 5))
def test_the_speaker_of_a_word_is_what_a_plain_search_finds(turns, at, length):
    (word,) = words((at, at + length))
    end = max(word.end, word.start + 1)
    shared = {one.speaker: 0 for one in turns}
    for one in turns:
        shared[one.speaker] += max(0, min(end, one.end) - max(word.start, one.start))
    far = {
        name: min(max(one.start - end, one.end and word.start - one.end) for one in turns if one.speaker == name)
        for name in shared
    }
    found = SpeakerTimes(turns).speaker_of(word)
    if max(shared.values()) > 0:
        assert shared[found] == max(shared.values())
    else:
        assert far[found] == min(far.values())


def test_segments_are_cut_where_the_speaker_changes_and_keep_all_words():
    heard = [segment((0, 1), (1, 2), (2, 3), (3, 4)), segment((5, 6))]
    parts = by_speaker(heard, [turn("S1", 0, 2), turn("S2", 2, 4), turn("S1", 5, 6)])
    assert [(part.speaker, len(part.words)) for part in parts] == [("S1", 2), ("S2", 2), ("S1", 1)]
    assert [word for part in parts for word in part.words] == [word for one in heard for word in one.words]


def test_numbers_follow_the_first_words_without_gaps_and_names_stay():
    a, b, c = f"{UNNAMED}0", f"{UNNAMED}1", f"{UNNAMED}2"
    turns = [turn(c, 0, 0.5), turn(b, 1, 2), turn("Ann", 2, 3), turn(a, 3, 4)]
    assert [one.speaker for one in number_speakers(turns, [segment((1, 2), (2, 3), (3, 4))])] == [
        "S3",
        "S1",
        "Ann",
        "S2",
    ]
    sides = [turn(a, 0, 1, 1), turn(b, 2, 3, 0)]
    heard = [segment((0, 1), channel=1), segment((2, 3), channel=0)]
    assert [one.speaker for one in number_speakers(sides, heard)] == ["S2", "S1"]


def chunk(turns: tuple[SpeakerTurn, ...] | None) -> Chunk:
    return Chunk(0, 1, 0, 5 * RATE, (segment((0, 1), (1, 2), (3, 4)),), "en", 0.9, turns=turns)


def test_documents_say_who_speaks():
    turns = (turn("S1", 0, 1.2), turn("<Ann & Bob>", 1, 2), turn("S1", 3, 6))
    kept = chunk(turns)
    transcript = assemble([kept], duration=5 * RATE, engine="e", model_of=lambda _: "m")
    assert transcript.speakers == {"S1": round(3.2 * RATE), "<Ann & Bob>": RATE}
    assert srt(transcript).decode().count("S1: ") == 2
    assert "<v &lt;Ann &amp; Bob&gt;>w1" in vtt(transcript).decode()
    assert txt(transcript).decode() == "S1: w0\n<Ann & Bob>: w1\nS1: w2\n"
    json = service_v1(transcript, Heading(job_id="job_1", created_at="now", words=True)).decode()
    assert '"speakers":[{"speaker":"S1","seconds":3.2},{"speaker":"<Ann & Bob>","seconds":1.0}]' in json
    assert '"turns":[{"start":0.0,"end":1.2,"speaker":"S1"}' in json
    assert '"end":5.0,"speaker":"S1"}]' in json, "turns end with the recording"


def test_words_have_no_speaker_where_nobody_was_found():
    nobody = assemble([chunk(())], duration=5 * RATE, engine="e", model_of=lambda _: "m")
    assert (nobody.turns, nobody.speakers, [one.speaker for one in nobody.segments]) == ((), {}, [None])
    assert assemble([chunk(None)], duration=5 * RATE, engine="e", model_of=lambda _: "m").turns is None


def test_speakers_are_listed_by_their_numbers_and_names_where_they_first_speak():
    turns = (("S2", 0, 1, 0), ("S3", 0, 2, 1), ("Ann", 1, 2, 0), ("S1", 2, 4, 0), ("S10", 3, 4, 1), ("S3", 4, 5, 1))
    spoken = tuple(SpeakerTurn(who, start * RATE, end * RATE, channel) for who, start, end, channel in turns)
    transcript = Transcript((), 5 * RATE, None, None, "e", "m", turns=spoken)
    assert list(transcript.speakers.items()) == [
        ("S1", 2 * RATE), ("Ann", RATE), ("S2", RATE), ("S3", 3 * RATE), ("S10", RATE)
    ]  # fmt: skip


def test_words_that_start_together_on_two_channels_keep_their_order_where_segments_are_cut():
    whole = [segment((1, 2), (3, 4), channel=1), segment((2, 2.5), (3, 4), channel=0)]
    cut = by_speaker(whole, [turn("A", 0, 2, 1), turn("B", 2.5, 5, 1), turn("C", 0, 5, 0)])
    orders = [[(word.start, part.channel) for word, part in words_in_time(parts)] for parts in (whole, cut)]
    assert orders[0] == orders[1] == [(RATE, 1), (2 * RATE, 0), (3 * RATE, 0), (3 * RATE, 1)]

"""Terms that are said very often do not make an answer of any length."""

from pipeline.documents.search import MAX_HITS, search_objects
from pipeline.words import Segment, Word


def test_of_a_term_that_is_said_again_and_again_the_first_hits_are_returned() -> None:
    words = tuple(Word("yes", 1600 * number, 1600 * number + 800, 0.9) for number in range(MAX_HITS + 5))
    [found, other] = search_objects([Segment(words, -0.1, 0.1)], ["Yes", "no"])
    assert [hit["start"] for hit in found["hits"]] == [round(0.1 * number, 3) for number in range(MAX_HITS)]
    assert other == {"query": "no", "hits": []}

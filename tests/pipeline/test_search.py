"""Terms that are said very often do not make an answer of any length."""

import pytest

from pipeline.audio import RATE
from pipeline.documents.formats import MAX_HITS, search_objects
from pipeline.words import Segment, Word


def test_of_a_term_that_is_said_again_and_again_the_first_hits_are_returned():
    words = tuple(Word("yes", 1600 * number, 1600 * number + 800, 0.9) for number in range(MAX_HITS + 5))
    [found, other] = search_objects([Segment(words, -0.1, 0.1)], ["Yes", "no"])
    assert [hit["start"] for hit in found["hits"]] == [round(0.1 * number, 3) for number in range(MAX_HITS)]
    assert other == {"query": "no", "hits": []}


@pytest.mark.parametrize(
    ("term", "said", "found"),
    [
        ("公園", ["私", "は", "公", "園", "に"], ["公園"]),
        ("公", ["公園", "に"], ["公園"]),
        ("ครับ", ["ส", "วัส", "ดี", "ครั", "บ"], ["ครับ"]),
        ("काल", ["कल", "काल"], ["काल"]),
        ("C++", ["C", "C++,", "c#", "c++"], ["C++,", "c++"]),
        ("C", ["C", "C++,", "c#"], ["C"]),
        ("%", ["50%", "of", "%"], ["50%", "%"]),
        ("Cafe\u0301", ["Café", "cafe"], ["Café"]),
    ],
)
def test_a_term_of_any_script_is_found_however_the_words_are_cut(term, said, found):
    spaced = term not in ("公園", "公", "ครับ")
    words = tuple(Word(text, n * RATE, (n + 1) * RATE, 0.9, spaced=spaced) for n, text in enumerate(said))
    [result] = search_objects([Segment(words, -0.2, 0.01)], [term])
    assert [hit["snippet"] for hit in result["hits"]] == found

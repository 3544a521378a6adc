"""Tests of names that are written for words that sound like them."""

import random
import re
import time
from pathlib import Path

import pytest

from pipeline.audio import position
from pipeline.events import Partial
from pipeline.text.options import TextOptions
from pipeline.text.rewriting import TextRewriter
from pipeline.text.stage import TextStage
from server.model import bounds
from tests.pipeline.decided_words import rewrite, text_of, words_of

NAMES = ("Kubernetes", "Scribewire", "Ada Lovelace", "New York", "metoprolol")
ORDER = TextOptions(sounds_like=NAMES)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("We run it on cooper netties, and that works.", "We run it on Kubernetes, and that works."),
        ("The scribe wire's server, (scribe wire).", "The Scribewire's server, (Scribewire)."),
        ("And ada loveless said so.", "And Ada Lovelace said so."),
        ("in new york and KUBERNETES", "in New York and Kubernetes"),
        ("fifty milligrams of meta pro lol", "fifty milligrams of metoprolol"),
    ],
)
def test_a_name_is_written_for_words_that_sound_like_it(text, written):
    assert text_of(text, ORDER) == written


@pytest.mark.parametrize(
    "text",
    [
        "My cooper. Netties are flowers.",
        "He was in court with a scribe and a metal pro.",
        "A new yoke, a day of love, and cooper (3.0) netties.",
        "It was a new year, and nobody ate anything.",
    ],
)
def test_other_words_stay_as_they_are(text):
    assert text_of(text, ORDER) == text_of(text, TextOptions())


PEOPLE = (  # noqa: SIM905  a list of names would be hard to read
    "James Mary John Patricia Robert Jennifer Michael Linda David Elizabeth William Barbara Richard Susan Joseph "
    "Jessica Thomas Karen Christopher Sarah Charles Lisa Daniel Nancy Matthew Sandra Anthony Betty Mark Ashley Donald "
    "Emily Steven Kimberly Andrew Margaret Paul Donna Joshua Michelle Kenneth Carol Kevin Amanda Brian Melissa Theo "
    "Andy Wendy Sean"
).split()


def ordinary_words() -> list[str]:
    """Return twenty thousand words of the documents of this repository, without what is no English."""
    root = Path(__file__).resolve().parents[2]
    pages = sorted(
        path
        for folder in ("", "server", "pipeline", "benchmarks", "estimator")
        for path in (root / folder).glob("*.md")
    )
    text = " ".join(
        re.sub(r"```.*?```|`[^`]*`|\(http\S*\)", " ", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for page in pages
    )
    return [word for word in re.sub(r"[^\w',.;:?!-]", " ", text).split() if any(map(str.isalpha, word))][:20_000]


def test_fifty_common_names_change_no_word_of_ordinary_english():
    text = " ".join(ordinary_words())
    assert len(text.split()) > 15_000
    changed = [word for word in rewrite(words_of(text), TextOptions(sounds_like=tuple(PEOPLE))) if word.heard]
    assert [(word.heard, word.text) for word in changed] == []


@pytest.mark.parametrize(
    ("name", "text", "written"),
    [
        ("Theo", "It was the best of times, the worst of times.", "It was the best of times, the worst of times."),
        ("Wendy", "When does it end, when to?", "When does it end, when to?"),
        ("Andy", "He and a dog, and, in the end, she.", "He and a dog, and, in the end, she."),
        ("Cline", "I use Kline here.", "I use Cline here."),
        ("Soren", "Make sure to ask. I am not sure.", "Make sure to ask. I am not sure."),
        ("Songstuff", "A song of song stuff by Songstuff.", "A song of Songstuff by Songstuff."),
        ("Kirsten", "So Kristen said.", "So Kirsten said."),
        ("David", "Divide and rule. They divide it.", "Divide and rule. They divide it."),
    ],
)
def test_everyday_words_are_never_replaced_by_their_sound_alone(name, text, written):
    assert text_of(text, TextOptions(sounds_like=(name,))) == written


def test_of_two_matches_the_closer_one_wins():
    order = TextOptions(sounds_like=("Ada Lovelace", "Ansible"))
    assert text_of("look at Ansible and at ansibel", order) == "look at Ansible and at Ansible"


def test_a_name_is_one_word_with_its_times_and_says_what_was_heard():
    words = words_of("on cooper netties now")
    [_, name, _] = rewrite(words, ORDER)
    assert (name.text, name.start, name.end, name.heard) == (
        "Kubernetes",
        words[1].start,
        words[2].end,
        "cooper netties",
    )
    assert rewrite(words_of("on Kubernetes now"), ORDER) == words_of("on Kubernetes now")


def test_what_was_replaced_or_hidden_is_no_name():
    order = TextOptions(sounds_like=("Cart", "fox"), redact=("pci",), replace=("dog:fax",))
    assert text_of("the dog has 4242 4242 4242 4242", order) == "the fax has [CARD]"


def test_only_words_that_begin_a_name_are_held():
    stage = TextStage(ORDER, language="en")
    counts = [len(stage.add(word, 0)) for word in words_of("people run cooper netties there")]
    assert counts == [1, 1, 0, 1, 1]
    assert stage.held_from is None


def test_a_partial_shows_the_name_too():
    rewriter = TextRewriter(TextStage(ORDER, language="en"))
    [partial] = rewriter.rewrite([Partial(tuple(words_of("on cooper netties now")), 0)], decided=0)
    assert isinstance(partial, Partial)
    assert partial.text == "on Kubernetes now"


@pytest.mark.parametrize(
    ("language", "name", "text", "written"),
    [
        ("de", "Müller", "Frau Muller kommt.", "Frau Müller kommt."),
        ("fr", "Lefèvre", "Monsieur le fevre, bonjour.", "Monsieur Lefèvre, bonjour."),
        ("de", "Müller", "Frau Meier kommt.", "Frau Meier kommt."),
        ("ja", "東京", "東京 です", "東京 です"),
    ],
)
def test_other_languages_are_compared_by_letters(language, name, text, written):
    assert text_of(text, TextOptions(sounds_like=(name,)), language=language) == written


def test_as_many_names_as_there_may_be_cost_little_in_an_hour_of_words():
    chance = random.Random(1)

    def syllables(count: int) -> str:
        return "k" + "".join(chance.choice("aeioubdkptmnrl") for _ in range(count))

    names = tuple(syllables(bounds.MAX_KEYWORDS_CHARS // bounds.MAX_KEYWORDS - 1) for _ in range(bounds.MAX_KEYWORDS))
    words = words_of(" ".join(syllables(chance.randint(1, 9)) for _ in range(2000)))
    stage = TextStage(TextOptions(sounds_like=names), language="en")
    began_s = time.process_time()
    for word in words:
        stage.add(word, 0)
    assert time.process_time() - began_s < 8.0  # some 1 ms a word on a quiet machine; an hour has 9,000
    assert stage.held_from is None or words[-1].end - stage.held_from < position(4)

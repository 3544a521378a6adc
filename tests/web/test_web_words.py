"""Tests of words.js: what is shown after each event, in scripts with and without spaces."""

import pytest

from tests.web.browsing import Page

SHOWN = """
const { LiveText } = await import("./web/words.js");
const box = document.createElement("div");
const text = new LiveText(box);
return arguments[0].map((event) => {
  text.hear(event);
  const final = [...box.querySelectorAll(".final")].map((word) => word.textContent).join("");
  return [final, box.querySelector(".partial")?.textContent ?? ""];
});
"""


def word(text: str, *, spaced: bool = True) -> dict[str, object]:
    return {"type": "word", "word": text, "start": 0.1, "end": 0.5} | ({} if spaced else {"spaced": False})


def partial(text: str) -> dict[str, object]:
    return {"type": "partial", "text": text, "start": 0.1}


@pytest.mark.parametrize(
    ("events", "shown"),
    [
        (
            [partial("so my fellow"), word("So"), word("my"), partial("fellow Americans"), word("fellow")],
            [["", " so my fellow"], ["So", " my fellow"], ["So my", " fellow"], ["So my", " fellow Americans"],
             ["So my fellow", " Americans"]],
        ),
        (
            [partial("今天天气"), word("今天", spaced=False), partial("天气好"), word("天气", spaced=False)],
            [["", " 今天天气"], ["今天", "天气"], ["今天", "天气好"], ["今天天气", "好"]],
        ),
        ([partial("meaning well"), word("I"), word("mean")], [["", " meaning well"], ["I", " well"], ["I mean", ""]]),
    ],
    ids=["with spaces", "without spaces", "heard otherwise"],
)  # fmt: skip
def test_what_is_still_open_stays_where_it_is_when_a_word_becomes_final(page, events, shown):
    page.open("#speak")
    assert page.script(f"return (async (...arguments) => {{ {SHOWN} }})(arguments[0])", events) == shown


SPEAKERS = """
const { LiveText } = await import("./web/words.js");
const box = document.createElement("div");
document.body.append(box);
const log = document.createElement("div");
const text = new LiveText(box, log);
return arguments[0].map((event) => {
  text.hear(event);
  return [...box.children].map((one) => [one.dataset.voice ?? null, one.textContent]);
});
"""


def word_event(index: int, text: str, speaker: str | None, at_s: float) -> dict[str, object]:
    known = {} if speaker is None else {"speaker": speaker}
    return {"type": "word", "index": index, "word": text, "start": at_s, "end": at_s + 0.4, **known}


def revision(*runs: tuple[int, int, str]) -> dict[str, object]:
    words = [{"first": first, "last": last, "speaker": speaker} for first, last, speaker in runs]
    return {"type": "speakers.revised", "words": words, "final": False}


def paragraphs(page: Page, events: list[dict[str, object]]) -> list[list[list[str]]]:
    page.open("#speak")
    shown: list[list[list[str]]] = page.script(
        f"return (async (...arguments) => {{ {SPEAKERS} }})(arguments[0])", events
    )
    return shown


def test_paragraphs_have_one_speaker_each_and_revisions_move_words_between_them(page):
    shown = paragraphs(
        page,
        [
            word_event(0, "Well", None, 0.1),
            word_event(1, "hello", "S1", 0.6),
            word_event(2, "there.", "S1", 1.1),
            word_event(3, "Hi.", "S1", 1.6),
            revision((0, 0, "S1"), (3, 3, "S2")),
            word_event(4, "Good", "S2", 2.1),
            {"type": "partial", "text": "to see", "start": 2.6},
            revision((2, 3, "S2")),
            word_event(5, "to", "S1", 6.0),
            revision((0, 5, "S1")),
        ],
    )
    assert shown[2] == [[None, "Well"], ["0", "S1: hello there."]]
    assert shown[4] == [["0", "S1: Well hello there."], ["1", "S2: Hi."]]
    assert shown[6] == [["0", "S1: Well hello there."], ["1", "S2: Hi. Good to see"]]
    assert shown[7] == [["0", "S1: Well hello"], ["1", "S2: there. Hi. Good to see"]]
    assert shown[8][2] == ["0", "S1: to see"], "after a pause"
    assert shown[9] == [["0", "S1: Well hello there. Hi. Good"], ["0", "S1: to see"]]


def test_a_speaker_looks_the_same_whoever_is_seen_first(page):
    speakers = ["S3", "Ann", "S1", "S2"]
    marks = []
    for order in (speakers, speakers[::-1]):
        events = [word_event(at, speaker, speaker, at) for at, speaker in enumerate(order)]
        marks.append({text.partition(":")[0]: mark for mark, text in paragraphs(page, events)[-1]})
    assert marks[0] == marks[1] == {"S1": "0", "S2": "1", "S3": "2", "Ann": "9"}


def test_words_that_were_taken_off_the_page_do_not_come_back_with_a_revision(page):
    page.open("#speak")
    left = page.script(
        """return (async (events) => {
          const { LiveText } = await import("./web/words.js");
          const box = document.createElement("div");
          document.body.append(box);
          const text = new LiveText(box);
          text.hear(events[0]);
          box.querySelector(".final").remove();
          for (const event of events.slice(1)) text.hear(event);
          return box.textContent;
        })(arguments[0])""",
        [word_event(0, "Old", "S1", 0.1), word_event(1, "new", "S1", 0.6), revision((0, 1, "S2"))],
    )
    assert left == "S2: new"


MIXED = [
    ("en", "Ann", "Welcome, everybody.", True),
    ("ar", "Ann", "مرحبا بكم في البرنامج 2026.", True),
    ("ja", "S1", "ようこそ、東京へ。", False),
    ("en", "S1", "Thank you.", True),
]
LANGUAGES = """
const { LiveText } = await import("./web/words.js");
const box = document.querySelector("#live-text") ?? document.body.appendChild(document.createElement("div"));
const log = document.createElement("div");
const text = new LiveText(box, log);
const looks = () => [...box.querySelectorAll("p")].map((one) => [
  one.lang, getComputedStyle(one).direction, getComputedStyle(one, "::before").content.replaceAll('"', ""),
]);
return [...arguments[0].map((event) => { text.hear(event); return looks(); }),
        [...log.children].map((one) => [one.lang, one.dir, one.textContent])];
"""


def mixed_events(rows: list[tuple[str, str, str, bool]]) -> list[dict[str, object]]:
    """Return the events of utterances in several languages, a word at a time, with speakers."""
    events: list[dict[str, object]] = []
    at = 0.0
    for language, speaker, text, spaced in rows:
        for part in text.split() if spaced else list(text):
            spacing = {} if spaced else {"spaced": False}
            said = {"word": part, "start": at, "end": at + 0.3, "speaker": speaker, "language": language, **spacing}
            events.append({"type": "word", "index": len(events), **said})
            at += 0.3
        events.append({"type": "segment", "text": text, "speaker": speaker, "language": language})
    return events


def read_languages(page: Page, events: list[dict[str, object]]) -> list[list[list[str]]]:
    page.open("#speak")
    shown: list[list[list[str]]] = page.script(
        f"return (async (...arguments) => {{ {LANGUAGES} }})(arguments[0])", events
    )
    return shown


def test_each_language_has_its_paragraph_with_its_name_and_its_direction(page):
    shown = read_languages(page, mixed_events(MIXED))
    assert shown[0] == [["en", "ltr", "none"]], "one language needs no name"
    assert shown[-2] == [
        ["en", "ltr", "none"], ["ar", "rtl", "Arabic"], ["ja", "ltr", "Japanese"], ["en", "ltr", "English"],
    ]  # fmt: skip
    assert shown[-1][1] == ["ar", "auto", "Ann: مرحبا بكم في البرنامج 2026."]


def test_a_session_whose_language_is_known_names_none(page):
    shown = read_languages(page, [{"type": "word", "index": 0, "word": "שלום", "start": 0.1, "end": 0.4}])
    assert shown[0] == [["", "rtl", "none"]]


def test_several_languages_in_the_field_are_those_that_may_be_found(page):
    page.open("#speak")
    asked = page.script(
        """return (async () => {
          const { orderFrom } = await import("./web/order.js");
          const place = document.querySelector("#speak-order");
          const field = place.querySelector("[name=language]");
          return ["ar, ja en", "de", ""].map((value) => {
            field.value = value;
            const { language, languages } = orderFrom(place);
            return [language ?? null, languages ?? null];
          });
        })()"""
    )
    assert asked == [[None, "ar,ja,en"], ["de", None], [None, None]]

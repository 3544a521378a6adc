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
def test_what_is_still_open_stays_where_it_is_when_a_word_becomes_final(
    page: Page, events: list[dict[str, object]], shown: list[list[str]]
) -> None:
    page.open("#speak")
    assert page.script(f"return (async (...arguments) => {{ {SHOWN} }})(arguments[0])", events) == shown

"""Writes Chinese in simplified or traditional characters, whichever Whisper wrote. Pure.

OpenCC converts whole phrases, because a simplified character may stand for several traditional ones:
头发 (hair) becomes 頭髮, 发现 (discover) becomes 發現.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from pipeline.words import Word

SCRIPTS = ("Hans", "Hant")
"""Simplified and traditional characters, by their codes in ISO 15924. The latter in the forms of Taiwan's standard."""

CHINESE = frozenset({"zh", "yue"})
"""The languages that are written in either script."""

CONTEXT = 6
"""Characters before a word that may begin its phrase: hardly any phrase is longer."""


class ScriptWriter:
    """Writes the words of one speaker in one script. It remembers the last characters, in which a phrase may begin."""

    def __init__(self, script: str) -> None:
        self._convert = _converter(script)
        self._before = ""

    def open_from(self, words: Sequence[Word]) -> int:
        """Return the index of the first word that may be part of a phrase that goes on; len(words) if none may be."""
        return len(words) - 1 if words and _is_han(words[-1].text[-1]) else len(words)

    def apply(self, words: Sequence[Word]) -> list[Word]:
        """Return *words* in the script."""
        text = "".join(word.text for word in words)
        written = self._convert(self._before + text)
        if len(written) != len(self._before) + len(text):  # a phrase has another length: each word by itself
            return [replace(word, text=self._convert(word.text)) for word in words]
        at, converted = len(self._before), []
        for word in words:
            end = at + len(word.text)
            converted.append(replace(word, text=written[at:end]))
            at = end
        return converted

    def note(self, words: Sequence[Word]) -> None:
        """Remember recognised words as the last that were decided."""
        self._before = (self._before + "".join(word.text for word in words))[-CONTEXT:]


def _is_han(sign: str) -> bool:
    return "\u3400" <= sign <= "\u9fff" or "\U00020000" <= sign <= "\U0003ffff"


@lru_cache(len(SCRIPTS))
def _converter(script: str) -> Any:
    from opencc import OpenCC  # noqa: PLC0415  6 MB of tables that few sessions need

    return OpenCC({"Hans": "t2s", "Hant": "s2tw"}[script]).convert

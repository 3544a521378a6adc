"""What users say beforehand about speech: names for speech in any language, prose only for speech in its own. Pure.

A model continues in the language of what it has read: an English sentence before French speech makes it translate.
Names and terms have no language.
"""
# ruff: noqa: RUF001  words of several scripts

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hints:
    """Names and terms that may be said, and a text that may come before the speech."""

    keywords: tuple[str, ...] = ()
    prompt: str = ""
    language: str | None = None  # of the prompt, which is for speech in it alone; None: for all speech

    def prompt_in(self, language: str | None) -> str:
        """Return the prompt for speech in *language*, if it is for that."""
        return self.prompt if self.language in (None, language) else ""


NO_HINTS = Hints()


def hints_for(keywords: Sequence[str], prompt: str, *, written: str | None, allowed: Sequence[str]) -> Hints:
    """Return the hints of an order.

    *written* is the language of all text, if the order fixes it: then the prompt is for all speech.
    *allowed* are the languages that may be found; if empty, all. The prompt is in the one whose small words it has, or
    else in the first of *allowed*. Without small words it is a list of terms, which have no language.
    """
    spoken = language_of_prose(prompt) if written is None else None
    if spoken is not None and allowed and spoken not in allowed:
        spoken = allowed[0]
    return Hints(tuple(keywords), prompt, spoken)


_SMALL_WORDS = {
    "ar": "في من على إلى عن هذا هذه التي الذي كان أن لا مع",
    "bg": "и на да се за от не като това със ще или",
    "ca": "el la els les i amb per que és una són aquest però",
    "cs": "a je se na že v s to ale jsem pro jak když nebo",
    "da": "og er det en at på ikke jeg af til med for som",
    "de": "der die das und ist nicht ein eine mit ich wir für auf dem den",
    "el": "και το η ο να είναι με για από που δεν στο",
    "en": "the and is of to in that it with for this are a was",
    "es": "el la los las y es que con una por para del no en se",
    "fi": "ja on ei se että hän tämä mutta kun ovat oli",
    "fr": "le la les et est que une des dans pour avec pas du nous sur",
    "he": "של את על לא זה הוא היא עם אני יש גם",
    "hi": "और है के में की का को से यह नहीं हैं",
    "hu": "a az és hogy nem egy van ez is volt meg",
    "id": "yang dan di ini itu dengan untuk tidak dari dalam adalah",
    "it": "il la gli e è che di una per con non del sono della",
    "nl": "de het een en is van niet dat met voor zijn op ik",
    "no": "og er det en at på ikke jeg av til med for som",
    "pl": "i w nie na się jest to że z do jak ale",
    "pt": "o os as e é que um uma com para não do da em",
    "ro": "și este nu la pe cu un o care din sau sunt",
    "ru": "и в не на что это с как по но он она для из",
    "sv": "och är det en att på inte jag av till med för som",
    "tr": "ve bir bu için de da ile çok ne değil var",
    "uk": "і в не на що це з як та але він вона для",
    "vi": "và là của có không một cho với được trong này",
}
"""Words that each sentence of a language has a few of."""
_WORDS = {language: frozenset(words.split()) for language, words in _SMALL_WORDS.items()}
_SIGNS = {
    "ja": re.compile("[\u3040-\u30ff]"),
    "ko": re.compile("[\uac00-\ud7af]"),
    "th": re.compile("[\u0e00-\u0e7f]"),
    "zh": re.compile("[\u4e00-\u9fff]"),  # after ja, whose kana show that it is Japanese
}
"""Scripts that one language alone has."""


def language_of_prose(text: str) -> str | None:
    """Return the language of sentences: the one that has most of their small words; None without two, or with a tie."""
    by_script = next((language for language, signs in _SIGNS.items() if signs.search(text)), None)
    if by_script is not None:
        return by_script
    said = set(re.findall(r"[^\W\d_]+", text.lower()))
    counts = {language: len(said & small) for language, small in _WORDS.items()}
    most = max(counts.values())
    best = [language for language, count in counts.items() if count == most]
    return best[0] if most > 1 and len(best) == 1 else None

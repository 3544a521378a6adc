"""Replaces phrases by those that users want, and hides swear words. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pipeline.text.figures import bare
from pipeline.words import Word

_EDGES = re.compile(r"^(\W*)((?:.*\w)?)(\W*)$", re.DOTALL)
_LETTER = re.compile(r"[^\W_]")
_SENTENCE_END = re.compile(r"""(?<![.?!])([.?!。？！])["'”’)]*$""")  # noqa: RUF001  the marks of Chinese too
_MARKS = ".,?!;:。，、？！"  # noqa: RUF001  the marks of Chinese too

_SWEAR_WORDS: Mapping[str, str] = {
    "en": "arse arsehole ass asses asshole assholes bastard bastards bitch bitches bitching bloody bollocks bugger "
    "bullshit cock cocks cocksucker crap cunt cunts damn damned dick dickhead dicks fuck fucked fucker fuckers fucking "
    "fuckin fucks goddamn goddammit motherfucker motherfuckers motherfucking piss pissed prick pricks pussy shit "
    "shits shitted shitting shitty slut sluts tits twat twats wank wanker wankers whore whores",
    "es": "cabrón cabrones cabrona carajo chingar chingada coño cojones culo gilipollas hostia joder jodido jodida "
    "maricón mierda pendejo pendeja pinche polla puta putas puto putos verga",
    "fr": "bordel chiasse chier connard connards connasse conne couille couilles cul encule enculé enculés foutre "
    "merde merdes niquer nique pute putes putain salaud salauds salope salopes",
    "de": "arsch ärsche arschloch arschlöcher fick ficken ficker fotze hure huren hurensohn kacke miststück nutte "
    "nutten pisse scheiß scheiße scheißen scheisse schlampe schlampen schwanz verfickt verpiss wichser",
    "it": "cazzo cazzi coglione coglioni cornuto cornuti fanculo figa fottere fottuto merda minchia puttana puttane "
    "stronza stronzo stronzi stronzata troia vaffanculo",
    "pt": "bosta buceta cacete caralho corno cu foda foder fodido fodida merda porra puta putas puto viado",
    "nl": "eikel flikker godverdomme hoer hoeren kak klootzak klootzakken kut kutten lul lullen neuken pik schijt slet "
    "sletten teef tering verdomme",
}

_SWEAR_WORD_SETS = {language: frozenset(words.split()) for language, words in _SWEAR_WORDS.items()}
"""Swear words by language, in lower case. An operator's own list takes the place of all (PROFANITY_FILE)."""


class Replacer:
    """Writes the wanted text for whole words, whatever their case. The longest phrase wins."""

    def __init__(self, replacements: Sequence[str]) -> None:
        """*replacements* have the form "recognised:wanted". Of several for the same phrase the first one counts."""
        pairs = [one.partition(":") for one in reversed(replacements)]
        self._replacements: Mapping[tuple[str, ...], str] = {
            tuple(filter(None, map(bare, phrase.split()))): replacement for phrase, _, replacement in pairs
        }
        self._longest = max(map(len, self._replacements), default=0)

    def open_from(self, words: Sequence[Word]) -> int:
        """Return the index of the first word that may begin a phrase that is not complete; len(words) if none may."""
        for at in range(max(0, len(words) - self._longest + 1), len(words)):
            tail = tuple(bare(word.text) for word in words[at:])
            if any(phrase[: len(tail)] == tail and len(phrase) > len(tail) for phrase in self._replacements):
                return at
        return len(words)

    def ends(self, words: Sequence[Word]) -> bool:
        """Return whether the last of *words* ends a phrase."""
        tail = tuple(bare(word.text) for word in words[-self._longest :]) if self._longest else ()
        return any(tail[at:] in self._replacements for at in range(len(tail)))

    def apply(self, words: Sequence[Word], before: str) -> list[Word]:
        """Return *words*, which come after the word *before*, with the wanted text.

        A phrase becomes one word with the same time and marks. If the wanted text is empty, only a mark that ends a
        sentence stays.
        """
        written: list[Word] = []
        at = 0
        while at < len(words):
            length, replacement = self._find_match(words, at)
            if replacement is None:
                written.append(words[at])
            elif replacement:
                written.append(as_one(words[at : at + length], replacement))
            else:
                end = _SENTENCE_END.search(words[at + length - 1].text)
                last = written[-1].text if written else before
                if end is not None and last and last[-1] not in _MARKS:
                    written.append(replace(as_one(words[at : at + length], ""), text=end[1], spaced=False))
            at += length
        return written

    def _find_match(self, words: Sequence[Word], at: int) -> tuple[int, str | None]:
        for length in range(min(self._longest, len(words) - at), 0, -1):
            phrase = tuple(bare(word.text) for word in words[at : at + length])
            if phrase in self._replacements:
                return length, self._replacements[phrase]
        return 1, None


def as_one(words: Sequence[Word], text: str) -> Word:
    """Return *words* as one word with this text, their time and the marks around them. *heard* has their own text."""
    first, last = _EDGES.match(words[0].text), _EDGES.match(words[-1].text)
    assert first is not None
    assert last is not None
    return replace(
        words[0],
        text=f"{first[1]}{text}{last[3]}",
        end=words[-1].end,
        probability=min(word.probability for word in words),
        heard=" ".join(word.heard or word.text for word in words),
    )


def without_profanity(words: Sequence[Word], swearing: frozenset[str]) -> list[Word]:
    """Return *words* with an asterisk for each letter of a swear word but the first."""
    return [replace(word, text=_mask(word.text), heard=None) if bare(word.text) in swearing else word for word in words]


def _mask(text: str) -> str:
    match = _EDGES.match(text)
    assert match is not None
    core = match[2]
    return match[1] + core[0] + _LETTER.sub("*", core[1:]) + match[3]


SWEAR_LANGUAGES = tuple(sorted(_SWEAR_WORD_SETS))


def swear_words(language: str | None) -> frozenset[str]:
    """Return the swear words of a language, and English ones for one that has no list."""
    return _SWEAR_WORD_SETS.get(language or "en", _SWEAR_WORD_SETS["en"])

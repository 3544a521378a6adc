"""Hides swear words behind asterisks. Pure."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from pipeline.text.figures import bare
from pipeline.words import Word

_EDGES = re.compile(r"^(\W*)((?:.*\w)?)(\W*)$", re.DOTALL)
_LETTER = re.compile(r"[^\W_]")
_HYPHEN = re.compile(r"[-‑]")  # noqa: RUF001  a hyphen too

_SWEAR_WORDS: Mapping[str, str] = {
    "en": "arse arsehole ass asses asshole assholes bastard bastards bitch bitches bitching bloody bollocks bugger "
    "bullshit cock cocks cocksucker crap cunt cunts damn damned dick dickhead dicks fuck fucked fucker "
    "fuckers fucking fuckin fucks goddamn goddammit motherfucker motherfuckers motherfucking piss pissed "
    "prick pricks pussy shit shits shitted shitting shitty slut sluts tits twat twats wank wanker wankers "
    "whore whores *fuck* *shit shit* *asshole* cunt* *cunt cocksuck* dickhead* bitch*",
    "es": "cabrón cabrones cabrona carajo chingar chingada coño cojones culo gilipollas hostia joder jodido jodida "
    "maricón mierda pendejo pendeja pinche polla puta putas puto putos verga gilipoll* putada* hijoputa* "
    "jodid* coñazo* cabron* encabron*",
    "fr": "bordel chiasse chier connard connards connasse conne couille couilles cul encule enculé enculés foutre "
    "merde merdes niquer nique pute putes putain salaud salauds salope salopes connard* encul* merd* emmerd* "
    "démerd* fouteu* *putain salop*",
    "de": "arsch ärsche arschloch arschlöcher fick ficken ficker fotze hure huren hurensohn kacke miststück nutte "
    "nutten pisse scheiß scheiße scheißen scheisse schlampe schlampen schwanz verfickt verpiss wichser "
    "scheiß* scheiss* *scheiß *scheiße *scheisse arsch* *arschloch *arschlöcher fick* verfick* gefick* fotze* "
    "*fotze kack* verpiss* angepisst wichs* *wichser huren* *nutte *schlampe beschissen* verschissen*",
    "it": "cazzo cazzi coglione coglioni cornuto cornuti fanculo figa fottere fottuto merda minchia puttana puttane "
    "stronza stronzo stronzi stronzata troia vaffanculo stronz* cazzat* *cazzo coglion* puttan* incazz* "
    "sputtan*",
    "pt": "bosta buceta cacete caralho corno cu foda foder fodido fodida merda porra puta putas puto viado merd* "
    "fodid* caralh* putari* cuzão*",
    "nl": "eikel flikker godverdomme hoer hoeren kak klootzak klootzakken kut kutten lul lullen neuken pik schijt "
    "slet sletten teef tering verdomme kut* klote* hoeren* schijt* neuk* *neuker *klootzak tering* godverd* "
    "mierenneuk*",
    "da": "fanden fisse helvede kraftedeme lort luder pik pis røvhul lorte* pisse* *luder røvhul* fucking*",
    "no": "dritt faen fitte helvete hore jævla jævlig kuk ræv dritt* rævhull* fucking*",
    "sv": "fitta helvete hora jävla jävlar jävlig knulla kuk skit skit* jävl* rövhål*",
}

_SWEAR_WORD_SETS = {language: frozenset(words.split()) for language, words in _SWEAR_WORDS.items()}
"""Swear words by language, in lower case; * stands for any letters. An operator's list takes the place of all."""

SWEAR_LANGUAGES = tuple(sorted(_SWEAR_WORD_SETS))


def swear_words(language: str | None) -> frozenset[str]:
    """Return the swear words of a language, and English ones for one that has no list."""
    return _SWEAR_WORD_SETS.get(language or "en", _SWEAR_WORD_SETS["en"])


def without_profanity(words: Sequence[Word], swearing: frozenset[str]) -> list[Word]:
    """Return *words* with an asterisk for each letter of a swear word but the first.

    *swearing*: words in lower case. "scheiß*" stands for all words that begin so, "*shit" for those that end so.
    """
    known = _compiled(swearing)
    return [replace(word, text=_mask(word.text), heard=None) if known.has(word.text) else word for word in words]


@dataclass(frozen=True, slots=True)
class _SwearWords:
    whole: frozenset[str]
    beginnings: tuple[str, ...]
    endings: tuple[str, ...]
    parts: tuple[str, ...]

    def has(self, text: str) -> bool:
        plain = unicodedata.normalize("NFC", bare(text))
        return (
            plain in self.whole
            or plain.startswith(self.beginnings)
            or plain.endswith(self.endings)
            or any(part in plain for part in self.parts)
            or not self.whole.isdisjoint(_HYPHEN.split(plain))
        )


@lru_cache(len(_SWEAR_WORDS) + 1)
def _compiled(swearing: frozenset[str]) -> _SwearWords:
    words = {unicodedata.normalize("NFC", word) for word in swearing}
    parts = {word for word in words if word.startswith("*") and word.endswith("*")}
    beginnings = {word for word in words - parts if word.endswith("*")}
    endings = {word for word in words - parts if word.startswith("*")}
    letters = [tuple(sorted(filter(None, (word.strip("*") for word in some)))) for some in (beginnings, endings, parts)]
    return _SwearWords(frozenset(words - parts - beginnings - endings), *letters)


def _mask(text: str) -> str:
    match = _EDGES.match(text)
    assert match is not None
    core = match[2]
    return match[1] + core[0] + _LETTER.sub("*", core[1:]) + match[3]

"""What differs from language to language in recognition and documents, as data. Pure.

profile_of() gives the profile of a language. One that has none gets PLAIN, which is right for any. What holds for a
script, whatever the language, is found by the characters themselves: marks, widths and graphemes.
"""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

import regex

SENTENCE_ENDS = (
    ".", "?", "!", "\u2026",
    "\u3002", "\uff0e", "\uff61", "\uff1f", "\uff01",  # Chinese and Japanese, full width and half
    "\u061f", "\u06d4",  # Arabic, Urdu
    "\u0964", "\u0965", "\u104a", "\u104b",  # Hindi and its neighbours, Burmese
    "\u0589", "\u1362", "\u17d4", "\u17d5",  # Armenian, Amharic, Khmer
)  # fmt: skip
"""The marks that end a sentence in any script."""

CLAUSE_ENDS = (
    ",", ";", ":", "\u2013", "\u2014",
    "\u3001", "\uff0c", "\uff1b", "\uff1a", "\uff64",  # Chinese and Japanese
    "\u060c", "\u061b",  # Arabic
    "\u055d", "\u1363", "\u1364",  # Armenian, Amharic
)  # fmt: skip
"""The marks that end a clause in any script."""

RIGHT_TO_LEFT_MARK = "\u200f"
_RIGHT_TO_LEFT = frozenset({"R", "AL"})
_GRAPHEME = regex.compile(r"\X")
_MARK = frozenset({"Mn", "Mc", "Me", "Cf"})
_TITLES = frozenset({"dr.", "prof.", "st.", "vs."})


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageProfile:
    """What is known of one language."""

    spaced: bool = True
    """Whether spaces are written between words."""

    columns: int = 42
    """The width of a line of subtitles, as in Netflix's style guide of the language."""

    columns_per_second: float = 17.0
    """How fast adults read subtitles, from the same guide."""

    titles: frozenset[str] = _TITLES
    """Abbreviations before a name, whose full stop ends no sentence. In lower case."""

    credits: tuple[str, ...] = ()
    """How the credits of subtitles begin that Whisper writes where nobody speaks: letters and figures in lower case."""


PLAIN = LanguageProfile()


def graphemes(text: str) -> list[str]:
    """Return the signs that a reader takes for one each: a letter with its accents, an emoji with its parts."""
    found: list[str] = _GRAPHEME.findall(text)
    return found


def columns(text: str) -> int:
    """Return the width of *text* on a screen.

    A full-width sign, an emoji and a ligature of several letters take two columns, any other grapheme takes one.
    Combining marks and joiners take none, unless they stand alone.
    """
    return sum(map(_width, graphemes(text)))


@lru_cache(4096)
def _width(grapheme: str) -> int:
    if any(unicodedata.east_asian_width(sign) in "WF" for sign in grapheme) or "\ufe0f" in grapheme:
        return 2
    return min(2, max(1, sum(unicodedata.category(sign) not in _MARK for sign in grapheme)))


def continues_grapheme(before: str, after: str) -> bool:
    """Return whether the start of *after* is a part of the last grapheme of *before*, as a vowel sign alone is."""
    if not before or not after or (before.isascii() and after.isascii()):
        return False
    last = graphemes(before)[-1]
    return len(graphemes(last + after)[0]) > len(last)


def reads_right_to_left(text: str) -> bool:
    """Return whether *text* is Arabic, Hebrew or the like: most of its letters are."""
    letters = [unicodedata.bidirectional(sign) for sign in text if sign.isalpha()]
    return 2 * sum(one in _RIGHT_TO_LEFT for one in letters) > len(letters)


def kept_right_to_left(line: str, text: str) -> str:
    """Return *line* of *text* so that players show it from right to left, if that is how *text* is read.

    A line that begins with a Latin name, a figure or a dash would be shown the other way round without a mark.
    """
    if not line or unicodedata.bidirectional(line[0]) in _RIGHT_TO_LEFT or not reads_right_to_left(text):
        return line
    return RIGHT_TO_LEFT_MARK + line


def comparable(text: str) -> str:
    """Return the letters and figures of *text* in lower case, and nothing between them."""
    return "".join(sign for sign in unicodedata.normalize("NFKC", text).casefold() if sign.isalnum())


_CHINESE = LanguageProfile(
    spaced=False,
    columns=32,
    columns_per_second=22.0,
    credits=(
        "字幕由 Amara.org", "字幕志愿者", "字幕志願者", "字幕by索兰娅", "请不吝点赞", "請不吝點贊",
        "谢谢观看", "謝謝觀看", "感谢观看", "感謝觀看", "明镜与点点栏目",
    ),
)  # fmt: skip

_PROFILES: Mapping[str, LanguageProfile] = MappingProxyType(
    {
        "ar": LanguageProfile(
            columns_per_second=23.0, credits=("ترجمة نانسي قنقر", "اشتركوا في القناة", "شكرا على المشاهدة")
        ),
        "cs": LanguageProfile(credits=("titulky vytvořil", "titulky vytvořila", "děkuji za pozornost")),
        "da": LanguageProfile(credits=("danske tekster af", "undertekster af", "tak for at se med")),
        "de": LanguageProfile(
            titles=_TITLES | {"hr.", "fr.", "bzw.", "ca.", "z.b."},
            credits=("untertitel im auftrag des", "untertitelung", "untertitel der amara", "untertitel von"),
        ),
        "en": LanguageProfile(
            columns_per_second=20.0,
            titles=_TITLES | {"mr.", "mrs.", "ms.", "sr.", "jr."},
            credits=(
                "thank you for watching",
                "thanks for watching",
                "please subscribe",
                "like and subscribe",
                "subtitles by the amara",
                "subtitles by",
                "transcription by castingwords",
                "captions by",
            ),
        ),
        "es": LanguageProfile(
            titles=_TITLES | {"sr.", "sra.", "ud.", "uds."},
            credits=("subtítulos por la comunidad", "subtítulos realizados por", "gracias por ver el video"),
        ),
        "fi": LanguageProfile(credits=("suomennos", "tekstitys", "kiitos kun katsoitte")),
        "fr": LanguageProfile(
            titles=_TITLES | {"m.", "mme."},
            credits=("sous titrage", "sous titres réalisés par", "sous titres par", "merci d avoir regardé"),
        ),
        "hi": LanguageProfile(columns_per_second=25.0),
        "it": LanguageProfile(
            titles=_TITLES | {"sig.", "dott."},
            credits=("sottotitoli creati dalla comunità", "sottotitoli e revisione a cura di", "sottotitoli a cura di"),
        ),
        "ja": LanguageProfile(
            spaced=False,
            columns=26,
            columns_per_second=14.0,
            credits=("ご視聴ありがとうございました", "字幕作成", "字幕視聴", "チャンネル登録"),
        ),
        "km": LanguageProfile(spaced=False),
        "ko": LanguageProfile(
            columns=32,
            columns_per_second=28.0,
            credits=(
                "시청해주셔서 감사합니다",
                "시청해 주셔서 감사합니다",
                "한글자막 by",
                "자막 제공",
                "구독과 좋아요",
            ),
        ),
        "lo": LanguageProfile(spaced=False),
        "my": LanguageProfile(spaced=False),
        "nl": LanguageProfile(
            credits=("ondertiteld door", "ondertiteling", "ondertitels ingediend door", "tv gelderland")
        ),
        "no": LanguageProfile(credits=("undertekster av", "teksting av nicolai winther")),
        "pl": LanguageProfile(credits=("napisy stworzone przez", "napisy zostały stworzone", "dziękuję za uwagę")),
        "pt": LanguageProfile(
            titles=_TITLES | {"sr.", "sra."},
            credits=("legendas pela comunidade", "legenda adriana zanotto", "legendas por", "obrigado por assistir"),
        ),
        "ro": LanguageProfile(credits=("subtitrarea realizată de", "vă mulțumim pentru vizionare")),
        "ru": LanguageProfile(
            credits=(
                "субтитры сделал",
                "субтитры создавал",
                "субтитры подготовил",
                "редактор субтитров",
                "продолжение следует",
            ),
        ),
        "sv": LanguageProfile(
            credits=("undertexter från amara", "undertexter av", "svensktextning", "textning stina hedin")
        ),
        "th": LanguageProfile(spaced=False, columns=35, columns_per_second=20.0),
        "tr": LanguageProfile(
            credits=("bu dizinin betimlemesi", "altyaz\u0131 m k", "izledi\u011finiz i\u00e7in te\u015fekk\u00fcrler")
        ),
        "uk": LanguageProfile(credits=("субтитри створив", "субтитрувальниця", "дякую за перегляд")),
        "yue": _CHINESE,
        "zh": _CHINESE,
    }
)

CREDITS = tuple(comparable(credit) for profile in _PROFILES.values() for credit in profile.credits)
"""The credits of all languages: Whisper writes those of one into another, too."""

UNSPACED = frozenset(code for code, profile in _PROFILES.items() if not profile.spaced)
"""The languages that are written without spaces between words."""

_UNSPACED_SIGN = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]")


def is_unspaced(text: str) -> bool:
    """Return whether *text* begins with a sign of a script that is written without spaces between words."""
    return _UNSPACED_SIGN.match(text) is not None


def profile_of(language: str | None) -> LanguageProfile:
    """Return what is known of *language*, a code such as "de"; PLAIN if that is nothing."""
    return _PROFILES.get(language or "", PLAIN)

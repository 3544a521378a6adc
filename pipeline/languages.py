"""What is known of languages: codes and names, how each is written, and the small words by which a text shows its own.

The codes are Whisper's: two letters of ISO 639-1 where there are some, but `jw` for Javanese. The English names are
those that OpenAI's API writes. profile_of() says how a language is written; one without a profile gets PLAIN, which is
right for any. What holds for a script, whatever the language, is found by the characters: marks, widths, graphemes.
"""

# ruff: noqa: RUF001  words of several scripts

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from types import MappingProxyType

import regex

_TABLE = """
af afr: afrikaans
am amh: amharic
ar ara arb: arabic, العربية
as asm: assamese
az aze azj: azerbaijani
ba bak: bashkir
be bel: belarusian
bg bul: bulgarian
bn ben: bengali, bangla
bo bod tib: tibetan
br bre: breton
bs bos: bosnian
ca cat: catalan, valencian
cs ces cze: czech, čeština
cy cym wel: welsh
da dan: danish, dansk
de deu ger: german, deutsch
el ell gre: greek, modern greek, ελληνικά
en eng: english
es spa: spanish, castilian, español
et est ekk: estonian
eu eus baq: basque
fa fas per pes prs: persian, farsi
fi fin: finnish, suomi
fo fao: faroese
fr fra fre: french, français
gl glg: galician, gallegan
gu guj: gujarati
ha hau: hausa
haw: hawaiian
he heb iw: hebrew, עברית
hi hin: hindi, हिन्दी
hr hrv: croatian
ht hat: haitian creole, haitian
hu hun: hungarian, magyar
hy hye arm: armenian
id ind in: indonesian, bahasa indonesia
is isl ice: icelandic
it ita: italian, italiano
ja jpn: japanese, 日本語
jw jv jav: javanese
ka kat geo: georgian
kk kaz: kazakh
km khm: khmer, cambodian
kn kan: kannada
ko kor: korean, 한국어
la lat: latin
lb ltz: luxembourgish, letzeburgesch
ln lin: lingala
lo lao: lao
lt lit: lithuanian
lv lav lvs: latvian
mg mlg plt: malagasy
mi mri mao: maori
mk mkd mac: macedonian
ml mal: malayalam
mn mon khk: mongolian
mr mar: marathi
ms msa may zsm: malay
mt mlt: maltese
my mya bur: myanmar, burmese
ne nep npi: nepali
nl nld dut: dutch, flemish, nederlands
nn nno: nynorsk, norwegian nynorsk
no nor nb nob: norwegian, bokmal, norwegian bokmal, norsk
oc oci: occitan
pa pan: punjabi, panjabi
pl pol: polish, polski
ps pus pbt: pashto, pushto
pt por: portuguese, português
ro ron rum mo mol: romanian, moldavian, moldovan, română
ru rus: russian, русский
sa san: sanskrit
sd snd: sindhi
si sin: sinhala, sinhalese
sk slk slo: slovak
sl slv: slovenian, slovene
sn sna: shona
so som: somali
sq sqi alb als: albanian
sr srp: serbian
su sun: sundanese
sv swe: swedish, svenska
sw swa swh: swahili
ta tam: tamil
te tel: telugu
tg tgk: tajik
th tha: thai, ไทย
tk tuk: turkmen
tl tgl fil: tagalog, filipino
tr tur: turkish, türkçe
tt tat: tatar
uk ukr: ukrainian, українська
ur urd: urdu
uz uzb uzn: uzbek
vi vie: vietnamese, tiếng việt
yi yid ji ydd: yiddish
yo yor: yoruba
yue: cantonese
zh zho chi cmn: chinese, mandarin, 中文
"""
"""A language a line: the code of the models, other codes (ISO 639-1 to -3, old ones, the usual dialect), its names.

The first name is English; many have the one that their speakers use.
"""

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

_TAG = re.compile(r"[a-z]{2,3}(?:-[a-z0-9]{1,8})*")  # BCP 47, but without tags that have no language
_CODES: dict[str, str] = {}  # every code, and the one of the models
_NAMES: dict[str, str] = {}  # every name, and its code
_ENGLISH_NAMES: dict[str, str] = {}  # a code, and the first name

for _line in _TABLE.strip().splitlines():
    _codes, _, _names = _line.partition(": ")
    _code = _codes.split()[0]
    _CODES |= dict.fromkeys(_codes.split(), _code)
    _NAMES |= dict.fromkeys(_names.split(", "), _code)
    _ENGLISH_NAMES[_code] = _names.split(", ")[0]

ENGLISH = "en"
SIMPLIFIED, TRADITIONAL = "Hans", "Hant"
_SCRIPTS = {"hans": SIMPLIFIED, "hant": TRADITIONAL} | {
    **dict.fromkeys(("cn", "sg", "my"), SIMPLIFIED),
    **dict.fromkeys(("tw", "hk", "mo"), TRADITIONAL),
}
"""The subtags of a Chinese tag that settle how it is written: scripts, and regions where one of them is usual."""

_LONGEST_CODE = 3


@dataclass(frozen=True, slots=True)
class NamedLanguage:
    """A language that somebody named: its code, and for Chinese the script if the name settles one."""

    code: str
    script: str | None = None  # SIMPLIFIED or TRADITIONAL


def language_named(text: str) -> NamedLanguage | None:
    """Return the language of a tag (en-US, pt_BR, zh-Hant-TW), a code (de, deu, ger, iw) or a name (german, deutsch).

    Case does not matter. None if *text* names no language that a model knows.
    """
    text = text.strip().lower()
    if text in _NAMES:
        return NamedLanguage(_NAMES[text])
    tag = text.replace("_", "-")
    if not _TAG.fullmatch(tag):
        return None
    primary, *more = tag.split("-")
    code = _CODES.get(primary)
    if code == "zh" and "yue" in more:
        code = "yue"
    if code not in ("zh", "yue"):
        return None if code is None else NamedLanguage(code)
    return NamedLanguage(code, next((_SCRIPTS[part] for part in more if part in _SCRIPTS), None))


def language_codes() -> frozenset[str]:
    """The codes of all languages that are known here."""
    return frozenset(_CODES.values())


def nearest_language(text: str) -> str | None:
    """Return the language whose name or code is most like *text*, as "german (de)"; None if none is like it."""
    text = text.strip().lower()[:100]
    of_codes, of_names = (get_close_matches(text, known, 1, 0.7) for known in (_CODES, _NAMES))
    primary = text.replace("_", "-").partition("-")[0]
    likely = of_names or of_codes if len(primary) > _LONGEST_CODE else of_codes
    found = likely or get_close_matches(primary, _CODES, 1)
    code = (_CODES | _NAMES)[found[0]] if found else None
    return None if code is None else f"{_ENGLISH_NAMES[code]} ({code})"


def unknown_language(text: str) -> str:
    """Return what a message says about a name that language_named() does not know."""
    nearest = nearest_language(text)
    hint = f"the nearest is {nearest}" if nearest else "give a tag such as en-US, a code such as de, or a name"
    if "," in text:
        hint = "list several in the member languages"
    return f"{text[:100]!r} is no language that is known here; {hint}"


def english_name(code: str) -> str:
    """Return the English name of a language in lower case, as OpenAI's API writes it; the code if it has none."""
    return _ENGLISH_NAMES.get(code, code)


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

_CACHED = 4096  # words and graphemes that are remembered: a live word is compared many times before it is final

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


@lru_cache(_CACHED)
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


@lru_cache(_CACHED)
def plain(text: str) -> str:
    """Return the letters and figures of *text*, without case, marks and accents that stand apart; else the marks.

    Vowel signs stay: of Hindi or Thai they are half of the letters.
    """
    whole = unicodedata.normalize("NFKC", text).casefold()

    def counts(sign: str) -> bool:  # a mark that belongs to no class of accents is a vowel
        return sign.isalnum() or (unicodedata.category(sign) in {"Mn", "Mc"} and not unicodedata.combining(sign))

    return "".join(filter(counts, whole)) or whole


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

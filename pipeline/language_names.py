"""The names of languages: what people and programs call them, and the codes that models know. Pure.

The codes are Whisper's: two letters of ISO 639-1 where there are some, but `jw` for Javanese. The English names are
those that OpenAI's API writes.
"""

import re
from dataclasses import dataclass
from difflib import get_close_matches

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
_CHINESE = frozenset({"zh", "yue"})
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
    if code not in _CHINESE:
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

# ruff: noqa: RUF001  Cyrillic letters look like Latin ones
"""Finds e-mail addresses in recognised words: written ones, and "john dot doe at example dot com" in each language.

The words become a string with one letter for the kind of each part, and the grammar of addresses is a regular
expression over that string. So "mail john.doe@example.com" is "WWDW@WDW".
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.text.figures import Reader, bare
from pipeline.words import Word

# ruff: noqa: RUF001  Cyrillic letters look like Latin ones


NO_WORDS: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressWords:
    """Words of one language, in lower case. Those of several parts have single spaces."""

    ats: frozenset[str]  # the sign @
    dots: frozenset[str]
    joins: frozenset[str]  # dash and the like
    unders: frozenset[str]  # underscore
    mistaken_ats: frozenset[str] = NO_WORDS  # words that "at" is often taken for
    spelled_by: tuple[tuple[str, ...], ...] = ()  # said between a letter and a word that begins with it
    cues: frozenset[str] = NO_WORDS  # said some time before an address


def _words(
    ats: str,
    dots: str,
    joins: str,
    unders: str,
    *,
    mistaken_ats: str = "",
    spelled_by: tuple[str, ...] = (),
    cues: str = "",
) -> AddressWords:
    """Return the words of one language. Those of *ats* are separated by commas, because some have several parts."""
    return AddressWords(
        ats=frozenset(("at", *(word.strip() for word in ats.split(",") if word))),
        dots=frozenset(("dot", *dots.split())),
        joins=frozenset(("dash", "hyphen", *joins.split())),
        unders=frozenset(("underscore", *unders.split())),
        mistaken_ats=frozenset(mistaken_ats.split()),
        spelled_by=tuple(tuple(phrase.split()) for phrase in spelled_by),
        cues=frozenset(("email", "e-mail", "mail", "gmail", *cues.split())),
    )


ADDRESS_WORDS: Mapping[str, AddressWords] = {
    "en": _words(
        "at the rate",
        "",
        "minus plus",
        "",
        mistaken_ats="and an add ad that it",
        spelled_by=("as in", "for", "like"),
        cues="address write contact reach",
    ),
    "ar": _words("آت,أت,ات", "دوت نقطة", "شرطة داش", "أندرسكور", cues="بريد البريد إيميل ايميل"),
    "bg": _words("кльомба,маймунка,маймунско а,ет", "точка", "тире", "долна черта", cues="имейл поща адрес"),
    "bs": _words("et,manki,majmun,ludo a", "tačka točka", "crtica minus", "donja crta", cues="mejl adresa"),
    "ca": _words("arrova,rova", "punt", "guió guionet", "baix", cues="correu adreça"),
    "cs": _words("zavináč,et", "tečka", "pomlčka minus", "podtržítko", cues="mejl adresa adresu"),
    "da": _words(
        "snabel a,snabel-a,snabela,snabel", "punktum prik", "streg bindestreg minus", "understreg", cues="adresse"
    ),
    "de": _words(
        "ät,et,klammeraffe,klammeraffen,affenschwanz",
        "punkt",
        "strich bindestrich minus",
        "unterstrich",
        spelled_by=("wie",),
        cues="adresse mailadresse e-mail-adresse emailadresse schreiben",
    ),
    "el": _words("παπάκι,παπακι,ατ", "τελεία", "παύλα", "κάτω", cues="μέιλ διεύθυνση ιμέιλ"),
    "es": _words(
        "arroba",
        "punto",
        "guion guión raya",
        "bajo baja subguion subguión",
        spelled_by=("de", "como"),
        cues="correo dirección electrónico",
    ),
    "et": _words("ätt,ät", "punkt", "sidekriips kriips", "alakriips", cues="meil aadress"),
    "fi": _words(
        "ät,ät-merkki,miukumauku,miuku mauku",
        "piste",
        "viiva väliviiva tavuviiva",
        "alaviiva",
        cues="osoite sähköposti",
    ),
    "fr": _words(
        "arobase,arrobas,arrobase,a commercial",
        "point",
        "tiret moins trait d'union",
        "souligné bas",
        spelled_by=("comme",),
        cues="adresse mél courriel",
    ),
    "gl": _words("arroba", "punto", "guión", "baixo", cues="correo enderezo"),
    "he": _words("שטרודל,כרוכית", "נקודה", "מקף", "תחתון", cues="מייל אימייל כתובת"),
    "hi": _words("ऐट,एट,एट द रेट,ऐट द रेट", "डॉट", "डैश", "अंडरस्कोर", cues="ईमेल मेल पता"),
    "hr": _words("et,manki,majmun,ludo a,afna", "točka", "crtica minus", "donja crta", cues="mejl adresa"),
    "hu": _words("kukac", "pont", "kötőjel", "aláhúzás alulvonás", cues="cím címem"),
    "id": _words("et", "titik", "strip setrip minus", "garis bawah", cues="alamat surel"),
    "it": _words(
        "chiocciola,chiocciolina",
        "punto",
        "trattino",
        "basso",
        spelled_by=("come", "di"),
        cues="indirizzo posta",
    ),
    "lt": _words("eta", "taškas", "brūkšnelis", "apatinis", cues="paštas adresas"),
    "lv": _words("et", "punkts", "defise domuzīme", "apakšsvītra", cues="pasts adrese"),
    "ms": _words("et", "titik noktah", "sempang", "garis bawah", cues="emel alamat"),
    "nl": _words(
        "apenstaartje,apestaartje,apenstaart",
        "punt",
        "streepje min koppelteken",
        "laag",
        spelled_by=("van", "als"),
        cues="adres mailadres",
    ),
    "nn": _words(
        "krøllalfa,krøll alfa,alfakrøll", "punktum prikk", "bindestrek strek", "understrek", cues="adresse epost"
    ),
    "no": _words(
        "krøllalfa,krøll alfa,alfakrøll", "punktum prikk", "bindestrek strek", "understrek", cues="adresse epost"
    ),
    "pl": _words(
        "małpa,małpka,et",
        "kropka",
        "myślnik minus kreska łącznik",
        "podkreślnik podkreślenie podłoga",
        cues="adres mejl",
    ),
    "pt": _words(
        "arroba",
        "ponto",
        "traço hífen",
        "underline baixo",
        spelled_by=("de", "como"),
        cues="correio endereço",
    ),
    "ro": _words("arond,a rond,coadă de maimuță,et", "punct", "cratimă liniuță minus", "jos", cues="adresa adresă"),
    "ru": _words(
        "собака,собачка,эт",
        "точка",
        "дефис тире минус чёрточка черточка",
        "подчёркивание подчеркивание нижнее",
        cues="почта почту почты адрес имейл мейл",
    ),
    "sk": _words("zavináč,et", "bodka", "pomlčka minus", "podčiarkovník podčiarknutie", cues="adresa adresu"),
    "sl": _words("afna,et", "pika", "vezaj pomišljaj", "podčrtaj", cues="naslov"),
    "sr": _words(
        "ет,et,мајмун,лудо а,majmun,ludo a",
        "тачка tačka",
        "цртица crtica",
        "доња црта donja crta",
        cues="мејл адреса mejl adresa",
    ),
    "sv": _words(
        "snabel a,snabel-a,snabela,ät", "punkt", "streck bindestreck minus", "understreck", cues="adress mejl epost"
    ),
    "tr": _words("et,kuyruklu a,kuyruklu", "nokta", "tire eksi", "alt çizgi", cues="adresim adres posta"),
    "uk": _words(
        "собака,собачка,равлик,песик,ет",
        "крапка",
        "дефіс тире мінус",
        "підкреслення нижнє",
        cues="пошта пошту адреса імейл",
    ),
    "vi": _words("a còng,a vòng,a móc", "chấm", "gạch", "dưới", cues="thư địa chỉ"),
}

ADDRESS_LANGUAGES = tuple(sorted(ADDRESS_WORDS))
OTHER = _words("", "", "", "")


def address_words_of(language: str | None) -> AddressWords:
    """Return the words of *language*, such as "en"; for one that is not in the table, the English signs alone."""
    return ADDRESS_WORDS.get(language or "", OTHER)


MAX_HOST_WORDS = 2
"""The most words of a host before its first dot, as in "at my company dot com", besides figures and letters."""

MAX_AT_WORDS = 4  # "coadă de maimuță"
NAME_WORDS = 2  # before the last word of a name that is said before "at"
ANNOUNCED = 8  # words within which an address comes after "my e-mail is"
LEAST_SPELLED = 4  # letters in a row that are hidden if words can be held no longer and they are not over

# The kinds of parts: a word, a figure or number, a spelled letter, a letter that is a word in some language too, "at",
# the sign for it, a word that "at" is mistaken for, "dot", "dash" and the like, "underscore", and a mark after which no
# address continues.
_WORD, _NUMBER, _LETTER, _SHORT, _AT, _SIGN, _MISTAKEN, _DOT, _JOIN, _UNDER, _MARK = "WNLlA@MDJU|"

_SHORT_WORDS = frozenset("aeiouy")
_ENDINGS = frozenset(("com", "org", "edu", "gov"))  # of hosts; no words by themselves
_DOMAINS = _ENDINGS | frozenset(
    "net info biz io co me tv eu us uk ca au nz ie de at ch fr be lu nl es pt br mx ar cl it ru ua by bg ro md pl cz "  # noqa: SIM905  a list would be hard to read
    "sk hu si hr rs ba gr tr se no dk fi is ee lt lv il in id my vn jp cn kr".split()
)
"""What ends a host, of which "dot" begins a new sentence otherwise: "at the top. Dot said"."""

_SIGN_WORDS = frozenset(("sign", "symbol", "zeichen"))  # "at sign"

_PIECES = re.compile(r"[^\W_]+(?:['’][^\W_]+)*|[@._+\-‑]")
_SIGNS = {"@": _SIGN, ".": _DOT, "_": _UNDER}  # others join
_END = r"[.,;:?!…)\]\"”]"
_ENDS = re.compile(f"(?<!{_END}){_END}+$")  # without looking behind, n marks would take n² steps
_WRITTEN = re.compile(r"@|^\.\w|[^\W\d]\.\w|\w\.[^\W\d]")  # a part of an address, as it is written
_SPELLED = re.compile(r"[^\W\d_](?:[-‑.][^\W_])+")  # J-O-H-N
_TWO_LETTERS = re.compile(r"[^\W\d_]{2}")
MAX_WRITTEN = 254  # characters of an address, and of a word that is split into parts
MAX_KNOWN = 1024

_PART = "(?:[LlN]+|[WM]N*)"
_LOCAL = f"(?:{_PART}?(?:[DJU]+{_PART})+|{_PART})"  # in live streams its first part may have been shown already
_SURE_LOCAL = f"(?:{_PART}?(?:J{_PART})*[DU][DJU]*{_PART}(?:[DJU]+{_PART})*)"
_HOST = f"(?:[LlNJ]*(?:[WM][LlNJ]*){{0,{MAX_HOST_WORDS}}})"
_SURE_HOST = f"(?:[LlNJ]*(?:[WM][LlNJ]*){{0,{2 * MAX_HOST_WORDS}}})"
_LABEL = f"(?:{_PART}(?:J{_PART})*)"
_ENDINGS_SAID = f"(?:D+{_LABEL})+D*(?!(?:[DJU]+{_PART})*[A@])"

_WHOLE = re.compile(
    f"{_SURE_LOCAL}[A@](?:{_SURE_HOST}{_ENDINGS_SAID}|{_LABEL}(?![A@]))"
    f"|{_LOCAL}?@(?:{_SURE_HOST}{_ENDINGS_SAID}|{_LABEL}(?![A@]))"
    f"|{_LOCAL}?A(?!D){_HOST}{_ENDINGS_SAID}"
    f"|{_SURE_LOCAL}M(?!D){_HOST}{_ENDINGS_SAID}"
)

_BEGUN = re.compile(
    f"(?:{_SURE_LOCAL}(?:[A@]{_SURE_HOST}|M{_HOST})|{_LOCAL}?@{_SURE_HOST}|{_LOCAL}?A{_HOST})(?:D+{_LABEL})*D*$"
)

_BEGUN_SURELY = re.compile(
    f"(?:(?:{_SURE_LOCAL}[A@]|{_LOCAL}?@){_SURE_HOST}(?:D+{_LABEL})*D*|{_LOCAL}?A{_HOST}D{_LABEL}?)$"
)

_LOCAL_BEGUN = re.compile(f"{_PART}?(?:[DJU]+{_PART})*[DJU]+{_PART}?$|[LlN]*L[LlN]*$|l[lN]*l$")
_LOCAL_CUT_OFF = re.compile(
    f"{_PART}?(?:[DJU]+{_PART})*[DU](?:{_PART}[DJU])*{_PART}?$|N*(?:[Ll]N*){{{LEAST_SPELLED},}}$"
    f"|(?:{_PART}?(?:[DJU]+{_PART})+|[LlN]+L[LlN]*|L[LlN]+)[A@]{_HOST}$"
)

_SURELY_BEGUN = re.compile(f"(?:{_SURE_LOCAL}[AM]|@){_HOST}(?:D+{_LABEL})*\\|$|^[^A@M]*\\|$")  # unlike "at the top."
_LAST = re.compile(f"{_LOCAL}$")
_FROM_THE_START = re.compile(f"(?:{_LOCAL}[DJU]?)?(?:[A@]{_HOST}(?:D+{_LABEL})*D*)?")


@dataclass(frozen=True, slots=True)
class Addresses:
    """Finds addresses in one language."""

    reader: Reader
    _words: AddressWords = field(init=False)
    _at_beginnings: frozenset[str] = field(init=False)
    _kinds: dict[str, tuple[str, ...]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_words", address_words_of(self.reader.language))
        parts = [phrase.split() for phrase in self._words.ats]
        beginnings = frozenset(" ".join(words[:count]) for words in parts for count in range(1, len(words)))
        object.__setattr__(self, "_at_beginnings", beginnings)

    def is_suspect(self, text: str) -> bool:
        """Return whether a word alone may be part of an address, other than its first part."""
        return any(kind in "A@DJU" for kind in self._kinds_of(text))

    def spans(self, words: Sequence[Word]) -> Iterator[tuple[int, int]]:
        """Yield the first word of each address and the word after its last, as indices."""
        row, places = self._row(words)
        reached = 0
        for found in _WHOLE.finditer(row):
            stop = places[found.end() - 1] + 1
            yield max(reached, self._name_from(words, places[found.start()])), stop
            reached = stop

    def _name_from(self, words: Sequence[Word], at: int) -> int:
        """Return where the name begins that ends with the word at *at*, as "John" does in "John Smith at x dot com"."""
        first = at
        while first > 0 and at - first < NAME_WORDS and _is_name(words[first].text) and _is_name(words[first - 1].text):
            if _ENDS.search(words[first - 1].text):
                break
            first -= 1
        return first

    def open_from(self, words: Sequence[Word], before: Sequence[str] = (), *, patient: bool) -> int:
        """Return the index of the first word of an address that may continue after *words*; len(words) if none may.

        *before*: the words before them, in lower case.
        *patient*: any last word may be the first part of one.
        """
        row, places = self._row(words)
        found = _BEGUN.search(row) or _LOCAL_BEGUN.search(row)
        if found is None and patient and (not _is_ended(words) or self._is_announced(words, before)):
            found = _LAST.search(row)
        return len(words) if found is None else self._name_from(words, places[found.start()])

    def _is_announced(self, words: Sequence[Word], before: Sequence[str]) -> bool:
        """Return whether an address was announced a moment ago: one may go on after a mark then."""
        said = [*before, *(bare(word.text) for word in words)]
        return not self._words.cues.isdisjoint(said[-ANNOUNCED:])

    def unfinished_from(self, words: Sequence[Word], *, held_longest: bool) -> int:
        """Return the index of the first word of an address that is hidden unfinished, because words must be released.

        It is len(words) if there is none.

        *held_longest*: the words were held for the longest time, so a long first part alone counts too.
        """
        row, places = self._row(words)
        found = _BEGUN_SURELY.search(row) or (_LOCAL_CUT_OFF.search(row) if held_longest else None)
        return len(words) if found is None else places[found.start()]

    def end_of_first(self, words: Sequence[Word]) -> int:
        """Return where an address ends that begins with the first word, complete or not; 0 if none begins there."""
        row, places = self._row(words)
        found = _FROM_THE_START.match(row)
        assert found is not None
        if found.end() == len(row):
            return len(words)
        return places[found.end() - 1] + 1 if found.end() else 0

    def _row(self, words: Sequence[Word]) -> tuple[str, list[int]]:
        """Return the string of kinds, one letter for each part of *words*, and the index of the word of each."""
        row: list[str] = []
        places: list[int] = []
        after = 0
        for number, word in enumerate(words):
            if number < after:
                continue
            kinds = self._kinds_of(word.text)
            if length := self._at_length(words, number):
                kinds, after = (_AT,), number + length
            if kinds in ((_LETTER,), (_SHORT,)) and (after := self._end_of_spelling(words, number)) > number + 1:
                kinds = (_LETTER, _LETTER)  # a letter with its word counts as two for LEAST_SPELLED
            if row and row[-1] == _AT and bare(word.text) in _SIGN_WORDS:
                row[-1] = _SIGN
                continue
            if row and row[-1] in (_WORD, _MISTAKEN, _MARK) and bare(word.text) in _ENDINGS and kinds[0] != _DOT:
                kinds = (_DOT, *kinds)
            if row and row[-1] == _MARK and self._goes_on("".join(row), kinds, words[number + 1 : number + 2]):
                row.pop()
                places.pop()
            if kinds and kinds[-1] in _WORD + _NUMBER and _ENDS.search(word.text):
                kinds += (_MARK,)
            row += kinds
            places += [number] * len(kinds)
        if row and row[-1] == _MARK:  # an address may go on after it: "John dot Smith. At example. Dot com."
            row.pop()
            places.pop()
        return "".join(row), places

    def _goes_on(self, row: str, kinds: Sequence[str], following: Sequence[Word]) -> bool:
        """Return whether *kinds*, before the word *following*, continue an address in *row* after its last mark."""
        if not kinds or kinds[0] not in _AT + _SIGN + _DOT + _JOIN + _UNDER:
            return False
        unsure = kinds == (_DOT,) and following and bare(following[0].text) not in _DOMAINS
        return not unsure or bool(_SURELY_BEGUN.search(row))

    def _at_length(self, words: Sequence[Word], at: int) -> int:
        """Return the number of words from *at* on that are said for the sign @ together; 0 if there are none.

        The last words count too if others may complete them.
        """
        for length in range(min(MAX_AT_WORDS, len(words) - at), 0, -1):
            said = " ".join(bare(word.text) for word in words[at : at + length])
            if said in self._words.ats or (at + length == len(words) and said in self._at_beginnings):
                return length
        return 0

    def _end_of_spelling(self, words: Sequence[Word], at: int) -> int:
        """Return where the words end that explain the letter at *at*: "J as in Juliet"; the next word if none do."""
        texts = [bare(word.text) for word in words[at + 1 : at + 4]]
        for between in self._words.spelled_by:
            count = len(between)
            if (
                tuple(texts[:count]) == between
                and texts[count : count + 1]
                and texts[count].startswith(bare(words[at].text))
            ):
                return at + 1 + count + 1
            if texts and len(texts) <= count and tuple(texts) == between[: len(texts)]:
                return at + 1 + len(texts)
        return at + 1

    def _kinds_of(self, text: str) -> tuple[str, ...]:
        if text not in self._kinds:
            if len(self._kinds) >= MAX_KNOWN:
                self._kinds.clear()
            self._kinds[text] = tuple(self._read(text))
        return self._kinds[text]

    def _read(self, text: str) -> Iterator[str]:
        known, plain = self._words, bare(text)
        if len(text) > MAX_WRITTEN:
            yield _SIGN if "@" in text else _WORD
        elif plain in known.ats:
            yield _AT
        elif plain in known.mistaken_ats:
            yield _MISTAKEN
        elif plain in known.dots:
            yield _DOT
        elif plain in known.unders:
            yield _UNDER
        elif plain in known.joins:
            yield _JOIN
        elif self.reader.has_figure(text) and not ("@" in text or (_TWO_LETTERS.search(plain) and "." in plain)):
            yield _NUMBER
        else:
            yield from self._pieces(_ENDS.sub("", text))

    def _pieces(self, text: str) -> Iterator[str]:
        """Yield the kinds of the parts of a word that is neither a number nor the name of a sign."""
        pieces = _PIECES.findall(text)
        if not (_WRITTEN.search(text) or _SPELLED.fullmatch(text) or not any(piece.isalnum() for piece in pieces)):
            pieces = [bare(text)] if pieces else []
        for piece in pieces:
            if not piece[0].isalnum():
                yield _SIGNS.get(piece, _JOIN)
            elif len(piece) == 1 and piece.isalpha():
                yield _SHORT if piece.casefold() in _SHORT_WORDS else _LETTER
            else:
                yield _NUMBER if self.reader.has_figure(piece) else _WORD


def _is_name(text: str) -> bool:
    plain = text.strip(".,")
    return plain.isalpha() and plain[0].isupper()


def _is_ended(words: Sequence[Word]) -> bool:
    return bool(words) and bool(_ENDS.search(words[-1].text)) and not words[-1].text.endswith(",")

# ruff: noqa: RUF001  Cyrillic letters look like Latin ones
"""The words of each language that are said within an e-mail address."""

from collections.abc import Mapping
from dataclasses import dataclass

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

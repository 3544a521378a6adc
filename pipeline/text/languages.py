"""The words of each language that the text stage has to know. In languages without an entry it knows figures only."""

from collections.abc import Mapping
from dataclasses import dataclass, field

NO_WORDS: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """Words of one language, in lower case."""

    spelled: bool = False  # whether text2num knows its number words
    zeros: frozenset[str] = NO_WORDS  # said for 0, unknown to text2num
    times: Mapping[str, int] = field(default_factory=dict)  # "double seven" is two sevens
    glue: frozenset[str] = NO_WORDS  # words between the figures of one number
    asides: frozenset[str] = NO_WORDS  # said in between while a number is read out or written down
    hesitations: frozenset[str] = NO_WORDS  # words of phrases such as "let me see", also said in between
    small: frozenset[str] = NO_WORDS  # the other words of such phrases, which mean nothing without one of those
    mistaken: Mapping[str, str] = field(default_factory=dict)  # words that a figure is often taken for
    percent: frozenset[str] = NO_WORDS  # their parts, some of which are number words too
    scales: frozenset[str] = NO_WORDS  # left as words after a number: 3 million
    hundreds: frozenset[str] = NO_WORDS  # "a hundred" stays in words
    plurals: frozenset[str] = NO_WORDS  # only say that there are many: "hundreds of people"
    parts: frozenset[str] = NO_WORDS  # of a fraction in words: "three quarters"
    ranges: frozenset[str] = NO_WORDS  # said between "two" and the next number: "two or three"
    limits: frozenset[tuple[str, str]] = frozenset()  # around the first of two numbers: "between one and ten"
    variants: Mapping[str, str] = field(default_factory=dict)  # number words that text2num does not know
    others: frozenset[str] = NO_WORDS  # number words that by themselves mean something else or "many"
    often: tuple[str, ...] = ()  # "a hundred times", which stays in words: it means "often"
    units: frozenset[str] = NO_WORDS  # second words of ordinals, no numbers by themselves
    ands: frozenset[str] = NO_WORDS  # said within a number: "two hundred and five"
    measures: frozenset[str] = NO_WORDS  # what two numbers before them count: "twenty, thirty minutes" are no year
    named: frozenset[str] = NO_WORDS  # said before a number that is read in parts: "flight seven forty-seven"
    pairs: bool = False  # whether years are said in pairs: nineteen eighty-four
    decades: Mapping[str, str] = field(default_factory=dict)  # "nineteen sixties"
    months: frozenset[str] = NO_WORDS  # before the day: "July fourth"
    days: frozenset[str] = NO_WORDS  # ordinals that are figures after a month, and words elsewhere
    clock: frozenset[str] = NO_WORDS  # said before a time of day: "at three thirty"
    halves_of_day: frozenset[str] = NO_WORDS  # said after one: "p.m."
    comma: str = ""  # said in a decimal number where text2num does not know it
    decimal_mark: str = ","  # written for it
    group: str = ""  # the mark between thousands
    codes: tuple[tuple[str, ...], ...] = ()  # what is said before a card, its security code or its last month
    cards: frozenset[str] = NO_WORDS  # said some time before the groups of a card, which may be far apart
    phone_figures: int = 10  # the least figures of a telephone number
    calls: frozenset[str] = NO_WORDS  # said before a telephone number, of which some figures may be missing


GLUE_SIGNS = frozenset(("-", "–", "—", ".", ",", "/", "+", "_"))  # noqa: RUF001  a recogniser may write them as words


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


def _ordinals(stems: str, *endings: str) -> frozenset[str]:
    return frozenset(stem + ending for stem in stems.split() for ending in endings)


VOCABULARIES: Mapping[str, Vocabulary] = {
    "en": Vocabulary(
        spelled=True,
        ands=_set("and"),
        measures=_set(
            "minute minutes second seconds hour hours day days week weeks month months dollar dollars euro "
            "euros pound pounds cent cents bucks percent mile miles meter meters metre metres kilometer "
            "kilometers kilometre kilometres foot feet inch inches degrees times gram grams kilo kilos"
        ),
        named=_set(
            "flight room page route bus line number highway interstate gate suite apartment train boeing "
            "channel section chapter extension"
        ),
        zeros=frozenset(("oh", "o", "nought", "naught", "nil")),
        times={"double": 2, "triple": 3, "treble": 3, "quadruple": 4},
        glue=frozenset(
            ("and", "dash", "hyphen", "space", "slash", "point", "plus", "uh", "um", "er", "then", "number")
        ),
        asides=_set(
            "okay ok yes yeah yep right sorry hmm mm mhm mm-hmm uh-huh huh ah dot period comma stop minus next again"
        ),
        mistaken={"to": "2", "too": "2", "for": "4", "fore": "4", "ate": "8", "won": "1", "tree": "3", "sex": "6"},
        hesitations=_set(
            "wait let let's see hold hang moment second sec minute think check look bear mean know actually "
            "correction again"
        ),
        small=_set(
            "me my i i'm it it's that that's is was the a on up for what you just one with be please no so "
            "well here there got can have find this but"
        ),
        percent=frozenset(("percent",)),
        scales=frozenset(("million", "millions", "billion", "billions", "trillion", "trillions")),
        hundreds=frozenset(("hundred", "thousand", "million", "billion", "trillion")),
        plurals=_set(
            "tens hundreds thousands millions billions trillions ones twos threes fours fives sixes sevens eights nines"
        ),
        parts=frozenset(("quarter", "quarters", "halves")),
        ranges=frozenset(("or", "to", "of")),
        limits=frozenset((("between", "and"), ("from", "to"), ("of", "to"))),
        pairs=True,
        decades={
            "twenties": "20s",
            "thirties": "30s",
            "forties": "40s",
            "fifties": "50s",
            "sixties": "60s",
            "seventies": "70s",
            "eighties": "80s",
            "nineties": "90s",
        },
        months=_set("january february march april may june july august september october november december"),
        days=_set("first second third fourth fifth sixth seventh eighth ninth"),
        clock=frozenset(("at", "by", "until", "till", "from", "to")),
        halves_of_day=frozenset(("am", "pm", "a.m", "p.m")),
        comma="point",
        decimal_mark=".",
        group=",",
        codes=(
            ("card", "number"),
            ("card", "is"),
            ("security", "code"),
            ("cvv",),
            ("cvc",),
            ("c", "v", "v"),
            ("c", "v", "c"),
            ("on", "the", "back"),
            ("expires",),
            ("expiry",),
            ("expiration",),
            ("exp",),
            ("good", "thru"),
            ("good", "through"),
            ("valid", "thru"),
            ("valid", "through"),
            ("verification",),
            ("pin",),
        ),
        cards=_set("card cards visa mastercard amex"),
        calls=frozenset(("call", "phone", "telephone", "mobile", "cell", "cellphone", "fax", "dial", "reach", "ring")),
    ),
    "fr": Vocabulary(
        spelled=True,
        ands=_set("et"),
        named=_set("vol chambre salle page ligne numéro bus train boeing"),
        times={"double": 2, "triple": 3},
        glue=frozenset(("et", "tiret", "espace", "virgule", "euh", "plus")),
        asides=_set("oui ok okay d'accord ben hum ah puis alors ensuite point pardon voilà moins"),
        hesitations=_set(
            "attends attendez moment instant seconde minute voyons voir vois regarde vérifie pense crois "
            "sais bouge bougez patientez"
        ),
        small=_set(
            "un une je c'est est ce que qu'est le la me moi laissez laisse j'ai donc s'il vous te plaît pas et a deux"
        ),
        percent=frozenset(("pour", "pourcent")),
        scales=frozenset(("million", "millions", "milliard", "milliards")),
        others=frozenset(("neuf", "mille")),
        plurals=frozenset(("cents",)),
        parts=frozenset(("quart", "quarts", "tiers")),
        ranges=frozenset(("ou", "à")),
        limits=frozenset((("entre", "et"), ("de", "à"))),
        often=("cent", "fois"),
        codes=(
            ("numéro", "de", "carte"),
            ("numéro", "de", "ma", "carte"),
            ("sécurité",),
            ("cryptogramme",),
            ("cvv",),
            ("expire",),
            ("expiration",),
        ),
        cards=_set("carte cartes visa mastercard"),
        calls=frozenset(("téléphone", "appelez", "appeler", "appelle", "portable", "mobile", "joindre", "fax")),
    ),
    "es": Vocabulary(
        spelled=True,
        ands=_set("y"),
        named=_set("vuelo habitación sala página línea número autobús tren boeing"),
        times={"doble": 2, "triple": 3},
        glue=frozenset(("y", "guion", "guión", "espacio", "coma", "eh", "más")),
        asides=_set("sí si vale ok okay bueno ah luego entonces después punto perdón menos"),
        hesitations=_set(
            "espera espere espérame espéreme momento momentito segundo minuto veamos ver déjame déjeme "
            "dejame creo pienso reviso mire mira"
        ),
        small=_set("un una a que es lo el la me yo por favor te le no así aquí está se"),
        percent=frozenset(("por",)),
        scales=frozenset(("millón", "millones")),
        others=frozenset(("mil", "un")),
        plurals=frozenset(("cientos", "miles", "millones")),
        parts=frozenset(("cuarto", "cuartos", "tercio", "tercios")),
        ranges=frozenset(("o", "a")),
        limits=frozenset((("entre", "y"), ("de", "a"))),
        variants={"veintiún": "veintiuno"},
        often=("cien", "veces"),
        units=_ordinals("primer segund tercer cuart quint sext séptim octav noven", "o", "a"),
        codes=(
            ("número", "de", "tarjeta"),
            ("número", "de", "mi", "tarjeta"),
            ("seguridad",),
            ("cvv",),
            ("vence",),
            ("caduca",),
            ("vencimiento",),
            ("caducidad",),
        ),
        cards=_set("tarjeta tarjetas visa mastercard"),
        phone_figures=9,
        calls=frozenset(("teléfono", "llame", "llámame", "llamar", "móvil", "celular", "fax")),
    ),
    "de": Vocabulary(
        spelled=True,
        ands=_set("und"),
        named=_set("flug zimmer raum seite linie nummer bus zug boeing"),
        zeros=frozenset(("zwo",)),
        times={"doppel": 2, "doppelt": 2, "zweimal": 2, "dreimal": 3, "viermal": 4, "dreifach": 3, "vierfach": 4},
        glue=frozenset(("und", "strich", "bindestrich", "leerzeichen", "komma", "äh", "plus")),
        asides=_set("ja okay ok genau gut richtig ähm hm mhm ah dann danach also punkt minus entschuldigung sorry"),
        hesitations=_set(
            "moment augenblick sekunde sekündchen minute warte warten schauen sehen gucken schaue denke "
            "glaube überlegen weiß nochmal"
        ),
        small=_set(
            "mal einen eine ein bitte sie ich ich's lass lassen mich mir das ist es nicht kurz noch wie war "
            "der die so was hier"
        ),
        percent=frozenset(("prozent",)),
        scales=frozenset(("million", "millionen", "milliarde", "milliarden")),
        others=frozenset(("acht", "tausend")),
        parts=frozenset(("viertel",)),
        ranges=frozenset(("oder", "bis")),
        limits=frozenset((("zwischen", "und"), ("von", "bis"))),
        often=("hundert", "mal"),
        comma="komma",
        codes=(
            ("kartennummer",),
            ("prüfnummer",),
            ("prüfziffer",),
            ("kartenprüfnummer",),
            ("sicherheitscode",),
            ("cvv",),
            ("gültig", "bis"),
            ("ablaufdatum",),
        ),
        cards=_set("karte karten kartennummer kreditkarte visa mastercard"),
        phone_figures=9,
        calls=frozenset(
            (
                "telefon",
                "telefonnummer",
                "handy",
                "handynummer",
                "mobil",
                "mobilnummer",
                "rufnummer",
                "rufen",
                "anrufen",
                "erreichen",
                "fax",
            )
        ),
    ),
    "it": Vocabulary(
        spelled=True,
        ands=_set("e"),
        named=_set("volo camera stanza pagina linea numero autobus treno boeing"),
        times={"doppio": 2, "triplo": 3},
        glue=frozenset(("e", "trattino", "spazio", "virgola", "più")),
        asides=_set("sì ok okay bene ehm ah poi allora dopo punto scusa scusi meno"),
        hesitations=_set(
            "aspetta aspetti momento attimo secondo minuto vediamo vedo vedere guardo controllo controllare credo penso"
        ),
        small=_set("un una che è il la mi fammi lasci lascia faccia per favore solo se lo qui non io"),
        percent=frozenset(("per",)),
        scales=frozenset(("milione", "milioni", "miliardo", "miliardi")),
        others=frozenset(("sei", "mille")),
        parts=frozenset(("quarto", "quarti", "terzo", "terzi")),
        ranges=frozenset(("o", "a")),
        limits=frozenset((("tra", "e"), ("fra", "e"), ("da", "a"))),
        often=("cento", "volte"),
        codes=(
            ("numero", "di", "carta"),
            ("numero", "della", "carta"),
            ("sicurezza",),
            ("cvv",),
            ("scade",),
            ("scadenza",),
        ),
        cards=_set("carta carte visa mastercard"),
        phone_figures=9,
        calls=frozenset(("telefono", "cellulare", "chiami", "chiamami", "chiamare", "fax")),
    ),
    "pt": Vocabulary(
        spelled=True,
        ands=_set("e"),
        named=_set("voo quarto sala página linha número ônibus comboio boeing"),
        zeros=frozenset(("meia",)),
        times={"duplo": 2, "triplo": 3},
        glue=frozenset(("e", "traço", "hífen", "espaço", "vírgula", "mais")),
        asides=_set("sim ok okay certo hum ah depois então ponto desculpe menos"),
        hesitations=_set(
            "espera espere aguarde aguarda peraí momento momentinho instante segundo minuto deixa deixe ver "
            "vejo acho penso"
        ),
        small=_set("um uma me eu que é o a só por favor lá aqui não se"),
        percent=frozenset(("por",)),
        scales=frozenset(("milhão", "milhões", "bilhão", "bilhões")),
        others=frozenset(("mil",)),
        parts=frozenset(("quarto", "quartos", "terço", "terços")),
        ranges=frozenset(("ou", "a")),
        limits=frozenset((("entre", "e"), ("de", "a"))),
        often=("cem", "vezes"),
        units=_ordinals("primeir segund terceir quart quint sext sétim oitav non", "o", "a"),
        codes=(
            ("número", "do", "cartão"),
            ("número", "do", "meu", "cartão"),
            ("segurança",),
            ("cvv",),
            ("vence",),
            ("validade",),
            ("expira",),
        ),
        cards=_set("cartão cartões visa mastercard"),
        phone_figures=9,
        calls=frozenset(("telefone", "celular", "telemóvel", "ligue", "ligar", "fax")),
    ),
    "nl": Vocabulary(
        spelled=True,
        ands=_set("en"),
        measures=_set(
            "minuut minuten seconde seconden uur uren dag dagen week weken maand maanden jaar euro dollar "
            "procent kilometer meter graden keer gram kilo"
        ),
        named=_set("vlucht kamer pagina lijn nummer bus trein boeing"),
        times={"dubbel": 2, "driedubbel": 3},
        glue=frozenset(("en", "streepje", "spatie", "komma", "plus")),
        asides=_set("ja oké oke okay ok goed eh ehm ah dan daarna punt sorry juist min"),
        hesitations=_set("wacht moment momentje seconde secondje even kijken kijk zien denk geloof"),
        small=_set("een ik eens laat me mij dat is het de nog wat was hier zo niet"),
        percent=frozenset(("procent",)),
        scales=frozenset(("miljoen", "miljard")),
        others=frozenset(("acht", "duizend")),
        parts=frozenset(("kwart", "derde")),
        ranges=frozenset(("of", "tot")),
        limits=frozenset((("tussen", "en"), ("van", "tot"))),
        often=("honderd", "keer"),
        pairs=True,
        codes=(("kaartnummer",), ("beveiligingscode",), ("cvv",), ("verloopt",), ("vervaldatum",)),
        cards=_set("kaart kaarten kaartnummer creditcard visa mastercard"),
        phone_figures=9,
        calls=frozenset(("telefoon", "telefoonnummer", "bel", "bellen", "mobiel", "fax")),
    ),
    "da": Vocabulary(
        spelled=True,
        ands=_set("og"),
        measures=_set(
            "minut minutter sekund sekunder time timer dag dage uge uger måned måneder år kroner krone euro "
            "procent kilometer meter grader gange gram kilo"
        ),
        named=_set("fly flight værelse side linje nummer bus tog boeing"),
        glue=frozenset(("og", "streg", "bindestreg", "komma", "plus")),
        asides=_set("ja okay ok rigtigt øh ah så derefter punktum undskyld minus"),
        hesitations=_set("vent øjeblik sekund minut lad se tror mener kigge tænke"),
        small=_set("et lige mig jeg det er den at i her skal hvad var så ikke"),
        percent=frozenset(("procent",)),
        scales=frozenset(("million", "millioner", "milliard", "milliarder")),
        others=frozenset(("tusind",)),
        parts=frozenset(("kvart", "kvarte")),
        ranges=frozenset(("eller", "til")),
        limits=frozenset((("mellem", "og"), ("fra", "til"))),
        often=("hundrede", "gange"),
        pairs=True,
        codes=(("kortnummer",), ("udløber",)),
        cards=_set("kort kortet kortnummer visa mastercard"),
        phone_figures=8,
        calls=frozenset(("telefon", "telefonnummer", "mobil", "ring", "ringe", "fax")),
    ),
}

OTHER = Vocabulary()
NUMERAL_LANGUAGES = tuple(sorted(name for name, words in VOCABULARIES.items() if words.spelled))


def vocabulary_of(language: str | None) -> Vocabulary:
    """Return the words of *language*, such as "en"; for one that is not in the table, a vocabulary of figures alone."""
    return VOCABULARIES.get(language or "", OTHER)

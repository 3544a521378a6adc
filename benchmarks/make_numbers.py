"""Makes benchmarks/numbers.tsv: sentences with numbers as people say them, and as they write them, in each language.

    pip install num2words==0.5.14 && python -m benchmarks.make_numbers

num2words spells the numbers. Sentences without numbers have the same text twice, because nothing in them may change.
They have words that look like numbers, such as "sei" in Italian, which is also "you are".
"""

import random
from collections.abc import Callable, Iterator, Mapping

from num2words import num2words

from benchmarks.text import NUMBERS, SENTENCES

KINDS: Mapping[str, Mapping[str, str]] = {
    "de": {
        "cardinal": "Sie haben {} Stück verkauft.",
        "year": "Das Haus wurde {} gebaut.",
        "ordinal": "Sie kam am {} Mai.",
        "figures": "Der Code ist {} und bleibt so.",
        "decimal": "Es waren {} Grad im Schatten.",
        "percent": "Etwa {} Prozent haben zugestimmt.",
    },
    "fr": {
        "cardinal": "Ils ont vendu {} pièces.",
        "year": "La maison date de {} environ.",
        "ordinal": "Elle habite au {} étage.",
        "figures": "Le code est {} depuis hier.",
        "decimal": "Il faisait {} degrés dehors.",
        "percent": "Environ {} pour cent étaient d'accord.",
    },
    "es": {
        "cardinal": "Han vendido {} piezas.",
        "year": "La casa es de {} más o menos.",
        "ordinal": "Vive en la {} planta.",
        "figures": "El código es {} desde ayer.",
        "decimal": "Hacía {} grados fuera.",
        "percent": "Cerca del {} por ciento estaba de acuerdo.",
    },
    "it": {
        "cardinal": "Hanno venduto {} pezzi.",
        "year": "La casa risale al {} circa.",
        "ordinal": "Abita al {} piano.",
        "figures": "Il codice è {} da ieri.",
        "decimal": "C'erano {} gradi fuori.",
        "percent": "Circa il {} per cento era d'accordo.",
    },
    "pt": {
        "cardinal": "Eles venderam {} peças.",
        "year": "A casa é de {} mais ou menos.",
        "ordinal": "Ela mora no {} andar.",
        "figures": "O código é {} desde ontem.",
        "decimal": "Fazia {} graus lá fora.",
        "percent": "Cerca de {} por cento concordaram.",
    },
    "nl": {
        "cardinal": "Ze hebben {} stuks verkocht.",
        "year": "Het huis werd in {} gebouwd.",
        "ordinal": "Ze kwam op de {} mei.",
        "figures": "De code is {} sinds gisteren.",
        "decimal": "Het was {} graden buiten.",
        "percent": "Ongeveer {} procent was het ermee eens.",
    },
    "da": {
        "cardinal": "De solgte {} stykker.",
        "year": "Huset blev bygget i {} her.",
        "ordinal": "Hun kom den {} maj.",
        "figures": "Koden er {} siden i går.",
        "decimal": "Det var {} grader udenfor.",
        "percent": "Omkring {} procent var enige.",
    },
}
COMMA: Mapping[str, str] = {
    "de": "Komma",
    "es": "coma",
    "fr": "virgule",
    "it": "virgola",
    "pt": "vírgula",
    "nl": "komma",
    "da": "komma",
}
WITHOUT: Mapping[str, tuple[str, ...]] = {
    "de": (
        "Gib bitte acht auf die Kinder.",
        "Ich habe einen Freund in der Stadt.",
        "Das ist eine gute Idee, und die erste Wahl war auch gut.",
        "Eins nach dem anderen.",
        "Ein Glas Wasser, bitte.",
    ),
    "fr": (
        "Elle porte un manteau neuf ce soir.",
        "C'est une bonne idée.",
        "La première fois, personne n'a rien dit.",
        "Mille mercis pour votre aide.",
        "L'un ou l'autre, peu importe.",
    ),
    "es": (
        "La segunda vez fue mejor que la primera.",
        "Es una buena idea.",
        "Mil gracias por todo.",
        "Uno nunca sabe lo que pasa.",
        "El lunes por la tarde no hay nadie.",
    ),
    "it": (
        "Tu sei molto gentile.",
        "Dove sei stato ieri sera?",
        "Mille grazie per tutto.",
        "La prima volta non ha funzionato, la seconda sì.",
        "Uno di noi deve andare.",
    ),
    "pt": (
        "Na segunda não posso, na sexta sim.",
        "É uma boa ideia.",
        "Mil desculpas pelo atraso.",
        "Um dia vamos voltar.",
        "A primeira vez foi difícil.",
    ),
    "nl": (
        "Geef acht op de kinderen.",
        "Het is een goed idee.",
        "De eerste keer ging het mis.",
        "Een van ons moet gaan.",
        "Wat is er tweede hands te koop?",
    ),
    "da": (
        "Det er en god ide.",
        "Et glas vand, tak.",
        "Den første gang gik det galt.",
        "En af os skal gå.",
        "Hun kom den anden dag.",
    ),
}
"""Sentences without numbers."""

MISSPELLED: Mapping[str, Mapping[str, str]] = {
    "da": {"ogtreds": "ogtres", " treds": " tres"},
    "es": {"décimoprimera": "decimoprimera", "décimosegunda": "decimosegunda"},
    "it": {"dicotto": "diciotto"},
}
"""The dictionaries' spellings of words that num2words spells in another way."""

Pair = tuple[str, str]
"""What is said and what is written."""


def cardinal(language: str, chance: random.Random) -> Pair:
    value = chance.choice((chance.randint(11, 99), chance.randint(101, 999), chance.randint(1001, 99_999)))
    return num2words(value, lang=language), str(value)


def year(language: str, chance: random.Random) -> Pair:
    value = chance.randint(1911, 1999)
    if language == "nl":
        return f"{num2words(value // 100, lang='nl')} {num2words(value % 100, lang='nl')}", str(value)
    if language == "da":
        return f"{num2words(value // 100, lang='da')} {num2words(value % 100, lang='da')}", str(value)
    return num2words(value, lang=language, to="year"), str(value)


def ordinal(language: str, chance: random.Random) -> Pair:
    value = chance.choice((*range(10, 20), *range(21, 30))) if language == "da" else chance.randint(10, 31)
    said = num2words(value, lang=language, to="ordinal")
    match language:
        case "de":
            return f"{said}n", f"{value}."
        case "es":
            return " ".join(part.removesuffix("o") + "a" for part in said.split()), f"{value}ª"
    return said, str(value) + {"fr": "ème", "nl": "e", "da": "."}.get(language, "º")


def figures(language: str, chance: random.Random) -> Pair:
    values = [chance.randint(0, 9) for _ in range(chance.randint(3, 8))]
    return " ".join(num2words(value, lang=language) for value in values), "".join(map(str, values))


def decimal(language: str, chance: random.Random) -> Pair:
    whole, part = chance.randint(10, 39), chance.choice((chance.randint(1, 9), chance.randint(11, 99)))
    return f"{num2words(whole, lang=language)} {COMMA[language]} {num2words(part, lang=language)}", f"{whole},{part}"


def percent(language: str, chance: random.Random) -> Pair:
    value = chance.randint(11, 99)
    return num2words(value, lang=language), str(value)


MAKERS: Mapping[str, Callable[[str, random.Random], Pair]] = {
    "cardinal": cardinal,
    "year": year,
    "ordinal": ordinal,
    "figures": figures,
    "decimal": decimal,
    "percent": percent,
}


def sentences(language: str) -> Iterator[Pair]:
    chance = random.Random(language)
    kinds = list(KINDS[language])
    for number in range(NUMBERS):
        kind = kinds[number % len(kinds)]
        said, written = MAKERS[kind](language, chance)
        for wrong, right in MISSPELLED.get(language, {}).items():
            said = f" {said}".replace(wrong, right).strip()
        yield KINDS[language][kind].format(said), KINDS[language][kind].format(written)
    yield from ((text, text) for text in WITHOUT[language])


def main() -> None:
    rows = [f"{language}\t{said}\t{wanted}" for language in KINDS for said, wanted in sentences(language)]
    SENTENCES.write_text("\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

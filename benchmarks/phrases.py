"""What people say to each other that no book reads aloud: numbers, prices, dates, spelled words, lists, addresses.

Synthetic voices (Debian's flite and espeak-ng) say made sentences, each word written as it is said, so that the
reference is exact. A phrase is one of KINDS, has a voice, a pace and a condition of benchmarks/conditions.py. Half of
the phrases are held out: other voices, other sentences, other numbers than those that settings were chosen on. The same
seed always gives the same phrases, and with the same versions of the voices the same samples.
"""

import random
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import soundfile

from benchmarks.conditions import by_telephone, clean, noisy
from benchmarks.live_scores import Truth
from benchmarks.tracks import Track
from pipeline.audio import RATE, Samples
from pipeline.ingest.resampling import Resampler

EACH = 10  # phrases of a kind, of those held out and of the others

VOICES: Mapping[bool, Sequence[str]] = {
    False: ("flite:slt", "flite:rms", "espeak:en-us", "espeak:en-gb+f2"),
    True: ("flite:awb", "flite:kal16", "espeak:en-gb", "espeak:en-us+f4"),
}
"""By whether a phrase is held out."""

PACES = (1.0, 1.2)
CONDITIONS = {"clean": clean, "pink noise, 20 dB": partial(noisy, colour="pink", snr_db=20), "telephone": by_telephone}

ESPEAK_WORDS_PER_MINUTE = 150
LEVEL = 0.3  # the loudest sample
EDGE_S = 0.3  # of silence before and after

_FIGURES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_TEENS = (
    "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_DAYS = (
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh",
    "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth", "nineteenth",
)  # fmt: skip
_NAMES = (
    "Peter Miller", "Anna Schmidt", "Maria Garcia", "John Walker", "Helen Carter", "Robert Jackson", "Susan Taylor",
    "Michael Brown", "Laura Anderson", "David Wilson", "Emma Thompson", "Charles Baker",
)  # fmt: skip
_SPELLED = (
    "SMITH",
    "BRIGHT",
    "KEVIN",
    "TAYLOR",
    "QUINN",
    "HARVEY",
    "WEBER",
    "LOGAN",
    "DIXON",
    "FRANK",
    "MOLLY",
    "ZELDA",
)
_GOODS = (
    "apples", "bread", "butter", "milk", "cheese", "tomatoes", "onions", "rice", "sugar", "coffee", "eggs", "flour",
    "honey", "carrots", "potatoes", "salt",
)  # fmt: skip
_STREETS = ("Baker Street", "Park Avenue", "Main Street", "King Street", "Mill Road", "Church Lane", "Station Road")
_HOSTS = ("example", "garden", "market", "travel", "window", "orange", "silver", "planet")


@dataclass(frozen=True, slots=True)
class Phrase:
    """One made phrase, and how it is said."""

    name: str
    kind: str
    held_out: bool
    text: str  # every word as it is said
    voice: str  # flite:NAME or espeak:NAME
    pace: float
    condition: str  # of CONDITIONS


Maker = Callable[[random.Random], str]


def phrases(seed: int = 1, kinds: Sequence[str] | None = None) -> list[Phrase]:
    """Return 2 * EACH phrases of each of *kinds*, None for all. Half of them are held out."""
    made = []
    for kind in kinds or tuple(KINDS):
        maker, sentences = KINDS[kind]
        for held_out in (False, True):
            chance = random.Random(f"{seed} {kind} {held_out}")
            ours = sentences[1::2] if held_out else sentences[::2]
            for number in range(EACH):
                text = ours[(number + number // 4) % len(ours)].format(maker(chance))
                voice = VOICES[held_out][number % 4]
                pace = PACES[number // 4 % 2]
                condition = _condition(voice, number)
                name = f"{kind} {'held out' if held_out else 'development'} {number}"
                made.append(Phrase(name, kind, held_out, text, voice, pace, condition))
    return made


def _condition(voice: str, number: int) -> str:
    """Return one of CONDITIONS; never the telephone for espeak-ng, which small recognisers do not understand there."""
    fit = [name for name in CONDITIONS if name != "telephone" or voice.startswith("flite:")]
    return fit[(number + number // 4) % len(fit)]


def record_phrase(phrase: Phrase, seed: int = 1) -> Track:
    """Return the phrase as its voice says it, in its condition. Its words have no times.

    Raises FileNotFoundError where flite or espeak-ng is not installed.
    """
    said = speak(phrase.voice, phrase.text, phrase.pace)
    edge = np.zeros(round(EDGE_S * RATE), np.float32)
    samples = np.concatenate([edge, said * (LEVEL / max(1e-6, float(np.abs(said).max()))), edge])
    truth = tuple(Truth(word, 0.0, 0.0) for word in phrase.text.split())
    [track] = CONDITIONS[phrase.condition]([Track(phrase.name, "en", samples, truth)], seed)
    return track


def speak(voice: str, text: str, pace: float) -> Samples:
    """Return *text* as a synthetic voice says it, at RATE."""
    program, _, name = voice.partition(":")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "said.wav"
        if program == "flite":
            command = ["flite", "-voice", name, "--setf", f"duration_stretch={1 / pace}", "-t", text, "-o", str(path)]
        else:
            command = ["espeak-ng", "-v", name, "-s", str(round(ESPEAK_WORDS_PER_MINUTE * pace)), "-w", str(path), text]
        subprocess.run(command, check=True, capture_output=True)
        samples, rate = soundfile.read(path, dtype="float32")
    if rate == RATE:
        return np.asarray(samples, np.float32)
    resampler = Resampler(rate)
    return np.concatenate([resampler.receive(samples), resampler.end()])


def digits(chance: random.Random, count: int, zero: str = "zero") -> str:
    """Return *count* random figures in words."""
    return " ".join(zero if figure == "zero" else figure for figure in (chance.choice(_FIGURES) for _ in range(count)))


def cardinal(value: int) -> str:
    """Return a whole number below a billion in words."""
    if value < 10:
        return _FIGURES[value]
    if value < 20:
        return _TEENS[value - 10]
    if value < 100:
        return _TENS[value // 10] + (f" {_FIGURES[value % 10]}" if value % 10 else "")
    for size, name in ((10**6, "million"), (1000, "thousand"), (100, "hundred")):
        if value >= size:
            rest = value % size
            return f"{cardinal(value // size)} {name}" + (f" {cardinal(rest)}" if rest else "")
    raise AssertionError(value)


def ordinal(value: int) -> str:
    """Return the number of a day, 1 to 31, in words."""
    if value < 20:
        return _DAYS[value - 1]
    if value in (20, 30):
        return {20: "twentieth", 30: "thirtieth"}[value]
    return f"{_TENS[value // 10]} {_DAYS[value % 10 - 1]}"


def _telephone(chance: random.Random) -> str:
    zero = chance.choice(("zero", "oh"))
    comma = chance.choice((", ", " "))
    area, middle, line = (digits(chance, count, zero) for count in (3, 3, 4))
    lead = chance.choice(("", "", f"one{comma}"))
    return f"{lead}{area}{comma}{middle}{comma}{line}"


def _card(chance: random.Random) -> str:
    return chance.choice((", ", " ")).join(digits(chance, 4) for _ in range(4))


def _order(chance: random.Random) -> str:
    return digits(chance, chance.randint(5, 9))


def _price(chance: random.Random) -> str:
    large = chance.choice((450, 12, 75, 320, 8, 99)) * 1000
    return chance.choice(
        (
            f"{cardinal(large)} dollars",
            f"{cardinal(chance.randint(3, 99))} dollars and {cardinal(chance.randint(11, 99))} cents",
            f"{cardinal(chance.randint(101, 999))} dollars",
            f"{cardinal(chance.randint(2, 9))} million dollars",
        )
    )


def _percent(chance: random.Random) -> str:
    whole, part = cardinal(chance.randint(2, 99)), chance.choice(_FIGURES[1:])
    return chance.choice((f"{whole} percent", f"{whole} point {part} percent"))


def _date(chance: random.Random) -> str:
    month, day = chance.choice(_MONTHS), ordinal(chance.randint(1, 31 if chance.random() < 0.3 else 28))
    year = chance.randint(1811, 1999)
    said = f"{cardinal(year // 100)} {cardinal(year % 100)}" if year % 100 > 9 else f"{cardinal(year // 100)} hundred"
    return chance.choice((f"{month} {day}, {said}", f"the {day} of {month}", f"{month} {day}"))


def _time(chance: random.Random) -> str:
    hour, minute = cardinal(chance.randint(1, 12)), cardinal(chance.choice((10, 15, 20, 25, 30, 40, 45, 50, 55)))
    return chance.choice((f"{hour} {minute}", f"{hour} o'clock", f"{hour} {minute} in the evening"))


def _address(chance: random.Random) -> str:
    street = f"{cardinal(chance.randint(2, 99))} {chance.choice(_STREETS)}"
    return chance.choice(
        (street, f"{street}, apartment {cardinal(chance.randint(2, 30))}", f"{street}, {digits(chance, 5)}")
    )


def _spelled_name(chance: random.Random) -> str:
    name = chance.choice(_SPELLED)
    return f"{name.capitalize()}, {'. '.join(name)}."


def _code(chance: random.Random) -> str:
    letters = [chance.choice("ABCDEFGHJKLMNPRSTUVWXYZ") for _ in range(3)]
    return f"{'. '.join(letters)}. {digits(chance, 4)}"


def _row_of_numbers(chance: random.Random) -> str:
    first = chance.choice((1, 1, 1, 5, 11, 20))
    return ", ".join(cardinal(first + step) for step in range(chance.randint(5, 12)))


def _repeated_word(chance: random.Random) -> str:
    word, times = chance.choice(("no", "yes", "very", "never", "go", "wait", "please", "ha")), chance.randint(3, 5)
    return chance.choice((", ", " ")).join([word] * times)


def _list(chance: random.Random) -> str:
    *goods, last = chance.sample(_GOODS, chance.randint(4, 7))
    return f"{', '.join(goods)} and {last}"


def _names(chance: random.Random) -> str:
    *names, last = chance.sample(_NAMES, chance.randint(2, 4))
    return f"{', '.join(names)} and {last}"


def _email(chance: random.Random) -> str:
    first, last = chance.choice(_NAMES).lower().split()
    return f"{first} dot {last} at {chance.choice(_HOSTS)} dot com"


def _web(chance: random.Random) -> str:
    return f"{chance.choice(('www dot ', ''))}{chance.choice(_HOSTS)} dot {chance.choice(('com', 'org', 'net'))}"


KINDS: Mapping[str, tuple[Maker, Sequence[str]]] = {
    "telephone": (
        _telephone,
        (
            "My number is {}. Please call me back after lunch.",
            "You can reach me at {} after lunch.",
            "Call {}.",
            "Thank you for calling. Our new telephone number is {}. We are open every day.",
            "The number of the office is {}.",
            "So that is {}, is that right?",
        ),
    ),
    "card": (
        _card,
        (
            "The card number is {}. Thank you very much.",
            "I would like to pay by card. It is {}. Did you get that?",
            "{}.",
            "Please charge {} today.",
        ),
    ),
    "order": (
        _order,
        (
            "Your order number is {}. It will arrive on Monday.",
            "I am calling about order {}.",
            "The reference is {}. Please write it down.",
            "Order {} has not arrived yet, and I am still waiting for it.",
        ),
    ),
    "price": (
        _price,
        (
            "The house costs {} today.",
            "They paid {} for it. That is a lot of money.",
            "It was {} in the shop.",
            "We will need {}.",
            "The total comes to {}, please.",
            "Would you take {} for the boat? I think it is a fair price.",
        ),
    ),
    "percent": (
        _percent,
        (
            "Sales rose by {} last year. Costs did not change.",
            "About {} of the people agreed.",
            "The rate is {}.",
            "The rent went up {}, and nobody told us why.",
        ),
    ),
    "date": (
        _date,
        (
            "He was born on {}. His mother was a teacher.",
            "The meeting is on {}.",
            "We moved here on {} and never left.",
            "It all began on {}, on a very cold morning.",
        ),
    ),
    "time": (
        _time,
        (
            "The train leaves at {}. Do not be late.",
            "Let us meet at {} tomorrow.",
            "It is {} now.",
            "The doctor can see you at {}, if that suits you.",
        ),
    ),
    "address": (
        _address,
        (
            "I live at {}. You cannot miss it.",
            "Please send it to {}.",
            "The shop moved to {} last week.",
            "Take me to {}, and hurry.",
        ),
    ),
    "spelled": (
        _spelled_name,
        (
            "My name is {} Did you get that?",
            "The family name is {}",
            "That is {} Thank you.",
            "Good morning. This is Mister {} I have a question.",
        ),
    ),
    "code": (
        _code,
        (
            "The code is {}. Please type it in now.",
            "Your booking is {}.",
            "Use {} at the door.",
            "The flight is {}, and it leaves in an hour.",
        ),
    ),
    "counting": (
        _row_of_numbers,
        (
            "{}.",
            "Ready? {}. Here I come.",
            "Let me count. {}. That is all.",
            "The child counted {}, and then he stopped.",
        ),
    ),
    "repeated": (
        _repeated_word,
        (
            "{}, that is not what I said.",
            "Oh {}. We have to talk.",
            "She said {}, and closed the door.",
            "{}!",
        ),
    ),
    "list": (
        _list,
        (
            "We need {}. I will be back soon.",
            "The bag holds {}.",
            "For dinner we bought {} at the market.",
            "Do not forget {}, because the shop closes early.",
        ),
    ),
    "names": (
        _names,
        (
            "Please welcome {}. They came a long way.",
            "The team is {}.",
            "I spoke to {} yesterday.",
            "With us today are {}, who need no introduction.",
        ),
    ),
    "email": (
        _email,
        (
            "Write to {}. I will answer at once.",
            "My address is {}.",
            "Please send the file to {} tonight.",
            "You can find me at {}, if you have a question.",
        ),
    ),
    "web": (
        _web,
        (
            "Go to {} and sign in.",
            "The page is {}. You will find everything there.",
            "Visit {}.",
            "We sell them at {}, and nowhere else.",
        ),
    ),
}
"""What the phrases are about: what makes the part that varies, and sentences around it, every second held out."""


def both_halves(made: Sequence[Phrase]) -> Iterator[tuple[str, list[Phrase]]]:
    """Yield the phrases for choosing settings, and the held-out ones, each with the name of its half."""
    yield "development", [phrase for phrase in made if not phrase.held_out]
    yield "held out", [phrase for phrase in made if phrase.held_out]

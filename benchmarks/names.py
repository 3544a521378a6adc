"""Names and products that a small model mishears, said by synthetic voices, for benchmarks/text.py.

Half of the names are held out: settings were chosen on the others.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.latency import Bench
from benchmarks.phrases import EDGE_S, LEVEL, speak
from pipeline.audio import RATE, Samples
from pipeline.recognition.engine import hint_of
from pipeline.text.options import TextOptions
from pipeline.words import Word, join_words

CHOSEN_ON = (
    "Kubernetes", "Ada Lovelace", "metoprolol", "Grafana", "Siobhan", "Scribewire", "Postgres", "Nguyen",
    "Terraform", "Buenos Aires", "omeprazole", "Dijkstra", "Nginx", "Guadalajara", "Elasticsearch", "Saoirse Ronan",
    "Jupyter", "Wroclaw", "Ansible", "Sagrada Familia", "gabapentin", "Tchaikovsky", "Redis", "Okonkwo",
)  # fmt: skip
HELD_OUT = (
    "Prometheus", "Grace Hopper", "atorvastatin", "Kibana", "Niamh", "Bitbucket", "Cassandra", "Xiaoming",
    "Helm Chart", "Rio de Janeiro", "lisinopril", "Euler", "Kafka", "Reykjavik", "Databricks", "Joaquin Phoenix",
    "Anaconda", "Ljubljana", "Vagrant", "Neuschwanstein", "ibuprofen", "Rachmaninoff", "Tailscale", "Adebayo",
)  # fmt: skip
SENTENCES = ("We talked about {} yesterday.", "Please look at {} before you go.", "I think {} is in the report.")
VOICES = ("espeak:en-us", "flite:slt", "espeak:en-gb+f2", "flite:rms", "flite:awb")


@dataclass(frozen=True, slots=True)
class Naming:
    """One sentence with a name, and the words that are recognised in it."""

    name: str
    held_out: bool
    keywords: bool  # whether the model was given the names
    words: Sequence[Word]


def sentences(names: Sequence[str]) -> Iterator[tuple[str, Samples]]:
    """Yield each name with its sentences, as voices say them."""
    edge = np.zeros(round(EDGE_S * RATE), np.float32)
    for number, name in enumerate(names):
        for place, sentence in enumerate(SENTENCES):
            voice = VOICES[(number * len(SENTENCES) + place) % len(VOICES)]
            said = speak(voice, sentence.format(name), 1.0)
            yield name, np.concatenate([edge, said * (LEVEL / float(np.abs(said).max())), edge])


def hearings(bench: Bench) -> Iterator[Naming]:
    """Yield the words that are recognised in each sentence, with the names as keywords and without."""
    for held_out, names in ((False, CHOSEN_ON), (True, HELD_OUT)):
        for name, samples in sentences(names):
            for keywords in (True, False):
                hint = hint_of(names, "") if keywords else ""
                yield Naming(name, held_out, keywords, bench.offline(samples, "en", hint))


def scores(heard: Sequence[Naming], shown: Callable[[Sequence[Word], TextOptions], Sequence[Word]]) -> dict[str, Any]:
    """Return how many names are spelled right before and after *shown* rewrites the words, and how many nobody said."""
    rows: dict[str, dict[str, int]] = {}
    for one in heard:
        order = TextOptions(sounds_like=HELD_OUT if one.held_out else CHOSEN_ON)
        before, after = join_words(one.words), join_words(shown(one.words, order))
        kind = f"{'held out' if one.held_out else 'chosen on'}, {'with' if one.keywords else 'without'} keywords"
        row = rows.setdefault(kind, {"said": 0, "as_heard": 0, "written": 0, "not_said": 0})
        row["said"] += 1
        row["as_heard"] += _has(before, one.name)
        row["written"] += _has(after, one.name)
        others = [name for name in order.sounds_like if name != one.name]
        row["not_said"] += sum(_has(after, name) and not _has(before, name) for name in others)
    return rows


def _has(text: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None

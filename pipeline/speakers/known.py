"""Learns what known people sound like from short recordings of each, and refuses recordings that would mislead."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.audio import RATE, Samples, seconds
from pipeline.errors import PipelineError, UnusableReference
from pipeline.ingest.input_formats import DecodeLimits
from pipeline.ingest.isolation import Isolation
from pipeline.speakers.clustering import FOUNDING_S, find_voices
from pipeline.speakers.diarizer import Diarizer, speaker_turns
from pipeline.speakers.options import SpeakerOptions
from pipeline.speakers.windows import SpeakerModels, average

LONGEST = 30 * RATE
"""The most samples of a reference."""

LEAST_S, MOST_S = 2.0, 10.0
"""The seconds of speech that a reference has."""

SAME = 0.85
"""The cosine from which the voices of two references are one person's."""

ANOTHER = ((1.0, 0.6), (FOUNDING_S, 0.65))
"""How long a second voice of a reference speaks, in seconds, and below which cosine it is another person's. The less of
it there is, the less its sound says."""


def known_voices(models: SpeakerModels, samples: Mapping[str, Samples]) -> dict[str, NDArray[np.float32]]:
    """Return what each person sounds like, by name. Raises UnusableReference, which names the person."""
    voices: dict[str, NDArray[np.float32]] = {}
    for name, reference in samples.items():
        voice = _voice(models, name, reference)
        for other, earlier in voices.items():
            if float(voice @ earlier) >= SAME:
                raise UnusableReference(name, f"it has the same voice as the reference of {other}")
        voices[name] = voice
    return voices


def learn_voices(
    isolation: Isolation, models: SpeakerModels, recordings: Mapping[str, bytes]
) -> dict[str, NDArray[np.float32]]:
    """Return what each person sounds like, by name, from recordings in any known format.

    Decoders read files, so each recording becomes one, without a name: nothing is left of it if this process is killed.

    Raises UnusableReference, also for a recording that cannot be decoded.
    """
    samples: dict[str, Samples] = {}
    for name, recording in recordings.items():
        with tempfile.TemporaryFile() as file:
            file.write(recording)
            file.seek(0)
            limits = DecodeLimits(longest_s=LONGEST / RATE)
            try:
                with isolation.decoding(Path(f"/dev/fd/{file.fileno()}"), limits) as audio:
                    samples[name] = np.concatenate([np.zeros(0, np.float32), *audio])
            except PipelineError as error:
                if error.retryable:
                    raise
                raise UnusableReference(name, str(error)) from error
    return known_voices(models, samples)


def _voice(models: SpeakerModels, name: str, samples: Samples) -> NDArray[np.float32]:
    if len(samples) > LONGEST:
        raise UnusableReference(
            name, f"it lasts {seconds(len(samples))} s, and at most {LONGEST // RATE} s are accepted"
        )
    diarizer = Diarizer(models)
    diarizer.add_samples(samples)
    diarizer.end()
    spoken: dict[str, float] = {}
    for turn in speaker_turns({None: diarizer}, SpeakerOptions()):
        spoken[turn.speaker] = spoken.get(turn.speaker, 0.0) + seconds(turn.end - turn.start)
    total = sum(spoken.values())
    if not LEAST_S <= total <= MOST_S:
        raise UnusableReference(name, f"it has {total:.1f} s of speech, and {LEAST_S:g} to {MOST_S:g} s are needed")
    for least_s, alike in ANOTHER:
        found = find_voices(diarizer.windows, 2, founding_s=least_s)
        if float(found[0] @ found[-1]) < alike:
            raise UnusableReference(name, "it has more than one voice")
    return average([turn for window in diarizer.windows for turn in window.turns])

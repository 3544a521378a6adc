"""Word errors and languages found in seven languages, of files and live, compared with transcribe().

    .venv/bin/python -m benchmarks.languages                        # es fr it ru nl cs en, 80 s each
    .venv/bin/python -m benchmarks.languages es fr --seconds 300 --half judging --result languages
    .venv/bin/python -m benchmarks.languages it --ways files --show # what was said and recognized, where it was wrong
    .venv/bin/python -m benchmarks.languages es fr it --ways translated

The recordings are those of benchmarks/corpora.py, which scripts/corpora fetches. Rules are chosen on the tuning half
alone. Each clip comes alone, all clips of a language on one track with pauses, and eight utterances of four languages
on a track. Ours has the models of a server without settings: as files and live, the language detected, and files with
the language given. transcribe() has base (--peer), beam 5 and the language given. Live words run on a clock of CPU time
alone. Translations are scored by chrF against the English prompts of the same names.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from benchmarks.corpora import FISHES, PROMPTS, Clip, clips_of, samples_of
from benchmarks.language_scores import (
    SHORTEST_FOUND_S,
    Heard,
    Recording,
    chrf_row,
    compare,
    errors_of_clips,
    figures,
    languages_of,
)
from benchmarks.measure import write
from benchmarks.memo import Memo, clock_of, memoise_engine
from benchmarks.virtual_time import VirtualTimeLoop
from pipeline.audio import RATE, WINDOW, Samples
from pipeline.batch import Batch, BatchOptions
from pipeline.events import WordsCommitted
from pipeline.ingest.isolation import Isolation
from pipeline.ingest.vad import Vad
from pipeline.live_stream import LiveStream
from pipeline.recognition.engine import TRANSCRIBE, TRANSLATE, Engine
from pipeline.recognition.engines.load import find_models
from pipeline.recognition.engines.models import locate
from pipeline.recognition.model_set import AUTO, EngineSettings, ModelSet
from pipeline.recognition.routing import LanguageRouter
from pipeline.recognition.stream import StreamCore
from pipeline.recognition.stream_options import BALANCED, StreamOptions, with_latency
from pipeline.words import Word, join_words

CORPORA = ("es", "fr", "it", "ru", "nl", "cs", "en")
DETECTED, GIVEN, LIVE, LIVE_GIVEN, THEIRS = "detected", "given", "live", "live, given", "transcribe()"
TRANSLATED, TRANSLATED_BY_THEM = "translated", "transcribe(task=translate)"
WAYS = {
    "translated": (TRANSLATED, TRANSLATED_BY_THEM),
    "files": (DETECTED, GIVEN, THEIRS),
    "live": (LIVE,),
    "live-given": (LIVE_GIVEN,),
}
KINDS = ("clips", "joined", "mixed")
PAUSES_S = (0.3, 2.5)
MIXED = ("en", "es", "en", "fr", "es", "ru", "en", "fr")  # the languages of a mixed track
SHORTEST_S = 1.0  # of a clip


class Ours:
    """The models of a server without settings."""

    def __init__(self, models: str = AUTO) -> None:
        settings = EngineSettings(engine="whisper", model=models, device="cpu", threads=1)
        found = find_models(settings)
        self._engines: dict[str, Engine] = {model.name: model.load() for model in found.models}
        self._found = found
        self.clock = clock_of([memoise_engine(engine) for engine in self._engines.values()])
        self._voice = Vad()

    def _models(self) -> ModelSet:
        models = ModelSet(self._found.models, self._engines.__getitem__, routes=self._found.routes)
        for name in models.names:
            models.pin(name)
        return models

    def hear_files(
        self, recordings: Sequence[Recording], *, given: bool = False, task: str = TRANSCRIBE
    ) -> Iterator[Heard]:
        with tempfile.TemporaryDirectory() as folder, Isolation() as isolation, ThreadPoolExecutor(1) as threads:
            for recording in recordings:
                models, path = self._models(), Path(folder) / "recording.wav"
                soundfile.write(path, recording.samples, RATE, subtype="PCM_16")
                batch = Batch(
                    engine=self._engines[models.names[0]],
                    models=models,
                    vad=self._voice,
                    isolation=isolation,
                    threads=threads,
                )
                options = BatchOptions(tenant="files", language=recording.language if given else None, task=task)
                began_s = self.clock()
                words = asyncio.run(_words_of(batch, path, options))
                yield Heard(join_words(words), self.clock() - began_s, words)

    def hear_live(self, recordings: Sequence[Recording], *, given: bool = False) -> Iterator[Heard]:
        for recording in recordings:
            began_s, options = self.clock(), StreamOptions(language=recording.language if given else None)
            with asyncio.Runner(loop_factory=partial(VirtualTimeLoop, self.clock)) as runner:
                recogniser = LanguageRouter(self._models())
                words, lags_s = runner.run(stream(recording.samples, recogniser, self._voice, options))
            yield Heard(join_words(words), self.clock() - began_s, words, lags_s)


async def stream(
    samples: Samples, recogniser: LanguageRouter, voice: Vad, options: StreamOptions
) -> tuple[list[Word], list[float]]:
    """Return the final words of a live session, and how late each was. For a VirtualTimeLoop."""
    core = StreamCore(with_latency(options, BALANCED, patient=True))
    session = LiveStream(core, vad=voice.stream(), recogniser=recogniser, tenant="live")
    words, lags_s = list[Word](), list[float]()
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def read() -> None:
        async for happened in session.events():
            lags_s.extend(happened.lags_s)
            if isinstance(happened.event, WordsCommitted):
                words.extend(happened.event.words)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(session.run())
        tasks.create_task(read())
        for at in range(0, len(samples), WINDOW):
            await asyncio.sleep(began + at / RATE - loop.time())
            await session.feed(samples[at : at + WINDOW])
        session.finish()
    return words, lags_s


async def _words_of(batch: Batch, path: Path, options: BatchOptions) -> list[Word]:
    chunks = [chunk async for chunk in batch.transcribe(path, options)]
    return [word for chunk in chunks for segment in chunk.segments for word in segment.words]


def hear_as_they(
    model: str, recordings: Sequence[Recording], *, task: str = TRANSCRIBE, filtered: bool = False
) -> Iterator[Heard]:
    """Yield what transcribe() makes of each recording, with its language given.

    *filtered*: with its voice filter and the times of words.
    """
    from faster_whisper import WhisperModel  # noqa: PLC0415  Ours has prepared it

    found = locate(model, cache_dir=None, download_wait_s=0)
    whisper = WhisperModel(str(found.folder), device="cpu", compute_type="int8", cpu_threads=1)
    whisper.model = memo = Memo(whisper.model, f"{model} int8")
    clock = clock_of([memo])
    for recording in recordings:
        began_s = clock()
        found_there, _ = whisper.transcribe(
            recording.samples,
            language=recording.language,
            beam_size=5,
            task=task,
            vad_filter=filtered,
            word_timestamps=filtered,
        )
        segments = list(found_there)
        words = [
            Word(word.word.strip(), round(word.start * RATE), round(word.end * RATE), word.probability)
            for segment in segments
            for word in segment.words or ()
        ]
        yield Heard("".join(segment.text for segment in segments).strip(), clock() - began_s, words)


def chosen(language: str, half: str, seconds: float) -> list[Clip]:
    """Return clips of a half of the corpus, by their digests, until they have *seconds* of sound."""
    usable, length = list[Clip](), 0.0
    clips = [clip for clip in clips_of(language) if half == "all" or clip.judges == (half == "judging")]
    np.random.default_rng(0).shuffle(clips)
    for clip in clips:
        clip_s = soundfile.info(clip.path).duration
        if length < seconds and clip_s >= SHORTEST_S:
            usable.append(clip)
            length += clip_s
    return usable


def on_one_track(name: str, clips: Sequence[Clip], seed: int) -> Recording:
    """Return the clips one after the other, with pauses."""
    chance, parts, places, at = np.random.default_rng(seed), list[Samples](), list[tuple[int, int, Clip]](), 0
    for clip in clips:
        samples = samples_of(clip)
        places.append((at, at + len(samples), clip))
        parts += [samples, np.zeros(round(chance.uniform(*PAUSES_S) * RATE), np.float32)]
        at += sum(map(len, parts[-2:]))
    return Recording(name, np.concatenate(parts[:-1]), tuple(places))


def mixed_tracks(clips: dict[str, list[Clip]], count: int) -> list[Recording]:
    """Return tracks of eight utterances of four languages."""
    if not set(MIXED) <= set(clips):
        return []
    said = {
        code: cycle([clip for clip in own if soundfile.info(clip.path).duration >= SHORTEST_FOUND_S])
        for code, own in clips.items()
    }
    return [on_one_track(f"mixed {number}", [next(said[code]) for code in MIXED], number) for number in range(count)]


def show(recordings: Sequence[Recording], heard: dict[str, list[Heard]]) -> None:
    """Print what was said and what each way heard, where one of them was wrong."""
    for number, recording in enumerate(recordings):
        if any(sum(errors for errors, _ in errors_of_clips(recording, one[number].text)) for one in heard.values()):
            print(f"  {recording.name}\n    {'said':13}{' '.join(clip.text for _, _, clip in recording.clips)}")
            for way, answers in heard.items():
                print(f"    {way:13}{answers[number].text}  {languages_of(recording, answers[number])}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="*", metavar="CORPUS", help=f"of {', '.join((*PROMPTS, *FISHES))}")
    parser.add_argument("--seconds", type=float, default=80.0, help="of clips of a language")
    parser.add_argument("--half", choices=("tuning", "judging", "all"), default="tuning")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=["files", "live"])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="of recordings")
    parser.add_argument("--tracks", type=int, default=1, help="how many the joined clips of a language make")
    parser.add_argument("--mixed", type=int, default=4, help="tracks of four languages, if en es fr ru are chosen")
    parser.add_argument("--models", default=AUTO, help="ours, as WHISPER_MODEL names them")
    parser.add_argument("--peer", default="base", help="the model of transcribe()")
    parser.add_argument("--show", action="store_true", help="print what was said and recognized, where it was wrong")
    parser.add_argument("--result", help="name of the result file; without it the figures are only printed")
    given = parser.parse_args()
    clips = {code: chosen(code, given.half, given.seconds) for code in given.corpora or CORPORA}
    if "translated" in given.ways:  # only what has an English prompt
        english = {clip.path.stem for clip in clips_of("en")}
        clips = {code: [clip for clip in own if clip.path.stem in english] for code, own in clips.items()}
    groups = {
        f"{code} {kind}": recordings
        for code, own in clips.items()
        for kind, recordings in (
            ("clips", [on_one_track(clip.path.stem, [clip], 0) for clip in own]),
            ("joined", [on_one_track("joined", own[at :: given.tracks], 7) for at in range(given.tracks)]),
        )
        if kind in given.kinds
    }
    if "mixed" in given.kinds and (tracks := mixed_tracks(clips, given.mixed)):
        groups["mixed"] = tracks
    ours = Ours(given.models)
    systems: dict[str, Callable[[Sequence[Recording]], Iterator[Heard]]] = {
        DETECTED: partial(ours.hear_files, given=False),
        GIVEN: partial(ours.hear_files, given=True),
        THEIRS: partial(hear_as_they, given.peer),
        LIVE: ours.hear_live,
        LIVE_GIVEN: partial(ours.hear_live, given=True),
        TRANSLATED: partial(ours.hear_files, task=TRANSLATE),
        TRANSLATED_BY_THEM: partial(hear_as_they, given.peer, task=TRANSLATE),
    }
    result: dict[str, Any] = {"half": given.half, "seconds": given.seconds, "peer": given.peer}
    for group, recordings in groups.items():
        ways = [way for kind in given.ways for way in WAYS[kind] if group != "mixed" or way in (DETECTED, LIVE)]
        heard = {way: list(systems[way](recordings)) for way in ways}
        rows = {
            way: chrf_row(recordings, answers, heard[TRANSLATED_BY_THEM])
            if way in WAYS["translated"]
            else figures(recordings, answers, finds=way in (DETECTED, LIVE))
            for way, answers in heard.items()
        }
        if THEIRS in rows:
            rows |= {
                way: {**rows[way], **compare(rows[way], rows[THEIRS])} for way in (DETECTED, GIVEN, LIVE) if way in rows
            }
        result[group] = rows
        for way, row in rows.items():
            shown = {name: value for name, value in row.items() if name not in ("each", "interval")}
            print(f"{group:10} {way:12}", *(f"{name} {value}" for name, value in shown.items()), flush=True)
        if given.show:
            show(recordings, heard)
    if given.result:
        print(write(given.result, result))


if __name__ == "__main__":
    main()

"""The Whisper engine: runs a model with CTranslate2, in windows no longer than needed, several of them in one call.

One call computes log-mel features, encodes them, detects languages, generates text and checks it with gates. If the
text is a loop, the window is decoded a second time. Words are aligned with the same encoder output. faster-whisper only
loads the model and the tokenizer; its transcribe() is not used. Call bootstrap.prepare() before importing this module.
"""

import logging
from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
from faster_whisper import WhisperModel
from faster_whisper.tokenizer import Tokenizer
from faster_whisper.transcribe import get_suppressed_tokens

from pipeline.audio import RATE, Samples, floats_of
from pipeline.errors import EngineFailed, ModelUnavailable
from pipeline.ingest.gain import raise_level
from pipeline.languages import UNSPACED
from pipeline.recognition.engine import TASKS, TRANSCRIBE, TRANSLATE, DecodeRequest, RecognitionResult, likeliest
from pipeline.recognition.engines.bootstrap import (
    cores,
    keep_memory,
    load_cuda,
    replica_count,
    thread_count,
)
from pipeline.recognition.engines.models import translates
from pipeline.recognition.engines.whisper.alignment import TextPiece, with_whole_characters, words_of
from pipeline.recognition.engines.whisper.answers import (
    Encoded,
    Hypothesis,
    before_timeless,
    failed_gate,
    missed_speech,
    misses_turn,
    skips_speech,
    with_missed,
    without_echo,
)
from pipeline.recognition.engines.whisper.mel import FRAMES_PER_S, HOP, LogMel
from pipeline.recognition.engines.whisper.windows import (
    FULL,
    Shape,
    WindowSizes,
    hint_tokens,
    max_length,
    prefix_text,
    window_for,
)
from pipeline.recognition.voicing import place_in_speech
from pipeline.words import Word

log = logging.getLogger(__name__)

USUAL_TYPE = {"cpu": "int8", "cuda": "float16"}  # CTranslate2's number type, by device
_ENGLISH = "en"  # the language of every translation
_SECOND_S = 20  # the shortest window of a second look; in 30 s it is no better and costs a fifth more
_BEAM = 5  # of finals, and of partials with a call of their own: greedy ones err a third more, for 15 % less CPU
_GPU_BATCH = 24  # on a CPU, where windows that share a call cost as much as alone and wait for each other, it is 1
_CACHED_TEXTS = 1024  # encoded hints and decided texts that are kept: the scheduler and the decoder ask for each
_NO_REPEAT = 4  # a second look at a loop in the same window may not repeat this many tokens
_ALIGN_BEYOND = FRAMES_PER_S // 5  # frames of padding in which the end of the last word may be found
_MARGIN = RATE // 5  # samples before and after speech without words that are recognised with it


def choose_device(device: str | None) -> str:
    """Return the device to use, cpu or cuda. None chooses cuda if there are a GPU and CUDA's libraries.

    Raises ModelUnavailable if *device* is cuda and it cannot be used.
    """
    if device == "cpu":
        return device
    if not ctranslate2.get_cuda_device_count():
        missing = "no NVIDIA GPU that CTranslate2 can use"
    elif not load_cuda():
        missing = "a GPU but not CUDA's libraries: run scripts/setup cuda"
        log.warning("this machine has %s", missing)
    else:
        return "cuda"
    if device == "cuda":
        raise ModelUnavailable(f"this machine has {missing}")
    return "cpu"


class WhisperEngine:
    """One loaded model. See pipeline.recognition.engine.Engine for the contract of its public names."""

    name = "whisper"

    def __init__(
        self,
        folder: Path,
        *,
        model: str,
        device: str | None = None,
        compute_type: str | None = None,
        threads: int | None = None,
        gpu_batch: int | None = None,
        sizes: WindowSizes = FULL,
    ) -> None:
        """Load the model in *folder*. Raises ModelUnavailable if it is not a Whisper model.

        *compute_type*: None chooses int8 on a CPU and float16 on CUDA.
        *threads*: of one call; None chooses them by the size of the model.
        *gpu_batch*: the most windows in one call on CUDA; None chooses it.
        *sizes*: the windows that suit the model. Full ones suit every Whisper model.
        """
        self.model = model
        self.sizes = sizes
        self.device = choose_device(device)
        self.compute_type = compute_type or USUAL_TYPE[self.device]
        self.max_batch = 1 if self.device == "cpu" else gpu_batch or _GPU_BATCH
        try:
            per_call = thread_count(threads, (folder / "model.bin").stat().st_size)
            on_cpu = self.device == "cpu"
            self.replicas = replica_count(cores(), per_call) if on_cpu else 1
            self.file_replicas_during_speech = min(self.replicas, max(1, (cores() - 1) // per_call)) if on_cpu else 1
            loaded = WhisperModel(
                str(folder),
                device=self.device,
                compute_type=self.compute_type,
                cpu_threads=per_call,
                num_workers=self.replicas,
                local_files_only=True,
            )
        except (RuntimeError, ValueError, OSError) as error:
            raise ModelUnavailable(f"the Whisper model in {folder} could not be loaded: {error}") from error
        keep_memory()
        self._model = loaded.model
        self._mel = LogMel(loaded.feature_extractor.mel_filters)
        self._multilingual = bool(self._model.is_multilingual)
        known = (code for code in loaded.supported_languages if loaded.hf_tokenizer.token_to_id(f"<|{code}|>"))
        self.languages = frozenset(known if self._multilingual else (_ENGLISH,))
        self.translates = self._multilingual and _ENGLISH in self.languages and translates(model)
        self._tokenizers = {
            (code, task): Tokenizer(loaded.hf_tokenizer, self._multilingual, task, code)
            for code in self.languages
            for task in TASKS
        }
        written = _ENGLISH if _ENGLISH in self.languages else min(self.languages)
        self._tokenizer = self._tokenizers[written, TRANSCRIBE]
        # What is never speech: symbols, and the model's own marks except the end token.
        self._suppressed = [one for one in get_suppressed_tokens(self._tokenizer, [-1]) if one is not None]
        self._tokens_of = lru_cache(_CACHED_TEXTS)(self._encode_text)

    @property
    def longest_job(self) -> int:
        """See Engine."""
        return self.sizes.longest_job

    def bucket(self, request: DecodeRequest) -> Hashable:
        """Return the Shape of the request: its window, prompt length and search. See Engine."""
        self._task(request, request.language or "")
        return self._shape(request, self.sizes)

    def recognise(
        self, requests: Sequence[DecodeRequest], *, sizes: WindowSizes | None = None
    ) -> list[RecognitionResult]:
        """See Engine. Finals that are a loop are decoded once more, and so is speech without words.

        *sizes* gives the windows; None uses those that suit the model.
        """
        sizes = sizes or self.sizes  # read once, because another thread may change it
        try:
            answers = self._recognise(requests, sizes)
            whole = [
                (self._fill_gaps if request.final else self._fill_skip)(request, answer, sizes)
                for request, answer in zip(requests, answers, strict=True)
            ]
            return [
                replace(answer, incomplete=misses_turn(request, answer.words))
                for request, answer in zip(requests, whole, strict=True)
            ]
        except RuntimeError as error:
            raise EngineFailed(f"CTranslate2 failed: {error}") from error

    def _recognise(self, requests: Sequence[DecodeRequest], sizes: WindowSizes) -> list[RecognitionResult]:
        # If the sizes have changed since these requests were grouped, their windows may differ: the longest fits all.
        shape = max((self._shape(request, sizes) for request in requests), key=lambda shape: shape.window_s)
        hypotheses = self._decode(requests, shape)
        for row, request in enumerate(requests):
            if request.final and hypotheses[row].failed in ("repetition", "too_fast"):
                hypotheses[row] = self._second_look(request, hypotheses[row], shape)
        return [
            hypothesis.with_words(_select_spoken(words, request, hypothesis.task))
            for request, hypothesis, words in zip(requests, hypotheses, self._align(requests, hypotheses), strict=True)
        ]

    def _fill_skip(self, request: DecodeRequest, result: RecognitionResult, sizes: WindowSizes) -> RecognitionResult:
        """Recognise a partial whose *result* skips speech after the decided words again, without those before it."""
        if self._prefix_tokens(request) and skips_speech(request, result.words):
            return self._recognise([replace(request, decided=())], sizes)[0]
        return result

    def _fill_gaps(self, request: DecodeRequest, result: RecognitionResult, sizes: WindowSizes) -> RecognitionResult:
        """Recognise speech without words in *result* once more by itself, and return *result* with the words found.

        A translation that has words is returned as it is: its words do not show which speech they belong to.
        """
        translated = self._task(request, result.language or "") == TRANSLATE
        if translated and result.words:
            return result
        searched_to = request.start
        while stretch := next(iter(missed_speech(result.words, request.voiced, since=searched_to, short=True)), None):
            first = max(stretch[0] - _MARGIN, request.start)
            last = min(stretch[1] + _MARGIN, request.start + len(request.samples))
            part = replace(request.between(first, last), language=result.language or request.language)
            [missed] = self._recognise([part], sizes)
            words, reached = with_missed(result.words, missed.words, stretch)
            searched_to = stretch[1] if translated else reached
            if len(words) > len(result.words):
                result = replace(result, words=words)
        return result

    def detect_language(self, samples: Samples) -> dict[str, float]:
        """See Engine. The window is as short as it can be: see decisions.md."""
        if not self._multilingual:
            return {_ENGLISH: 1.0}
        try:
            return self._languages(self._encode([raise_level(samples)], window_for(len(samples))))[0]
        except RuntimeError as error:
            raise EngineFailed(f"CTranslate2 failed: {error}") from error

    def close(self) -> None:
        """See Engine."""
        self._model.unload_model()

    def _decode(self, requests: Sequence[DecodeRequest], shape: Shape, **search: int) -> list[Hypothesis]:
        loud_enough = [
            raise_level(one.samples, [(start - one.start, end - one.start) for start, end in one.voiced])
            for one in requests
        ]
        encoded = self._encode(loud_enough, shape.window_s)
        languages = self._languages_of(requests, encoded)
        prompts = [
            [
                *self._prompt(self._hint_tokens(request)[: shape.hint_tokens], language, self._task(request, language)),
                *self._prefix_tokens(request)[: shape.prefix_tokens],
            ]
            for request, (language, _) in zip(requests, languages, strict=True)
        ]
        results = self._model.generate(
            encoded.states,
            prompts,
            beam_size=_BEAM if shape.final or self.max_batch == 1 else 1,
            max_length=max_length(len(prompts[0]), shape.max_tokens),
            return_scores=True,
            return_no_speech_prob=True,
            suppress_tokens=self._suppressed,
            **search,
        )
        return [
            self._hypothesis(request, result, shape, language, (encoded, row))
            for row, (request, result, language) in enumerate(zip(requests, results, languages, strict=True))
        ]

    def _hypothesis(
        self,
        request: DecodeRequest,
        result: Any,
        shape: Shape,
        language: tuple[str, float],
        place: tuple[Encoded, int],
    ) -> Hypothesis:
        sequence = result.sequences_ids[0]  # includes the given tokens with which it begins
        written = tuple(token for token in sequence if token < self._tokenizer.eot)
        tokens = with_whole_characters(written, self._tokenizer.decode)
        text = self._tokenizer.decode(tokens)
        # CTranslate2 divides by the number of tokens without the end token, which counts too (as in faster-whisper).
        avg_logprob = result.scores[0] * len(sequence) / (len(sequence) + 1)
        failed = failed_gate(
            text,
            seconds=len(request.samples) / RATE,
            avg_logprob=avg_logprob,
            no_speech_prob=result.no_speech_prob,
            cut_off=len(tokens) >= shape.max_tokens,
            voiced_s=request.voiced_s,
        )
        task = self._task(request, language[0])
        return Hypothesis(tokens, text, *language, task, avg_logprob, result.no_speech_prob, failed, *place)

    def _second_look(self, request: DecodeRequest, first: Hypothesis, shape: Shape) -> Hypothesis:
        """Decode a request whose answer *first* is a loop again, in a longer window and without the hint.

        If there is no longer window, the second answer may not repeat itself. Return *first* if it is no better.
        """
        unaided = Shape(max(shape.window_s, window_for(len(request.samples), _SECOND_S)), 0, final=True)
        [second] = self._decode([request], unaided, no_repeat_ngram_size=_NO_REPEAT if shape == unaided else 0)
        return first if second.failed else second

    def _align(self, requests: Sequence[DecodeRequest], hypotheses: Sequence[Hypothesis]) -> list[tuple[Word, ...]]:
        """Return the words of each hypothesis; none for those that fail a gate.

        Hypotheses of the same encoding, language and task share a call of align().
        """
        words: list[tuple[Word, ...]] = [()] * len(hypotheses)
        groups: dict[tuple[int, str, str], list[int]] = {}
        for index, hypothesis in enumerate(hypotheses):
            if hypothesis.tokens and hypothesis.failed is None:
                groups.setdefault((id(hypothesis.encoded), hypothesis.language, hypothesis.task), []).append(index)
        for (_, language, task), members in groups.items():
            encoded = hypotheses[members[0]].encoded
            tokens: list[tuple[int, ...]] = [()] * encoded.rows  # rows of other groups are left empty
            frames = [2] * encoded.rows
            for index in members:
                row = hypotheses[index].row
                tokens[row] = hypotheses[index].tokens
                content = -(-len(requests[index].samples) // HOP) + _ALIGN_BEYOND
                frames[row] = min(content, encoded.window_s * FRAMES_PER_S)
            results = self._model.align(encoded.states, self._tokenizers[language, task].sot_sequence, tokens, frames)
            for index in members:
                words[index] = self._words(requests[index], hypotheses[index], results[hypotheses[index].row])
        return words

    def _words(self, request: DecodeRequest, hypothesis: Hypothesis, aligned: Any) -> tuple[Word, ...]:
        text_language = _ENGLISH if hypothesis.task == TRANSLATE else hypothesis.language
        tokenizer = self._tokenizers[text_language, hypothesis.task]
        split = tokenizer.split_tokens_on_unicode if text_language in UNSPACED else tokenizer.split_tokens_on_spaces
        texts, tokens = split([*hypothesis.tokens, tokenizer.eot])
        return words_of(
            [TextPiece(text, len(parts)) for text, parts in zip(texts[:-1], tokens[:-1], strict=True)],
            aligned.alignments,
            aligned.text_token_probs,
            floats_of(request.samples),
            start=request.start,
            language=text_language,
            final=request.final,
        )

    def _encode(self, windows: Sequence[Samples], window_s: int) -> Encoded:
        frames = window_s * FRAMES_PER_S
        features = np.stack([self._mel(samples, frames) for samples in windows])
        states = self._model.encode(ctranslate2.StorageView.from_array(features))
        return Encoded(states, window_s, len(windows))

    def _languages_of(self, requests: Sequence[DecodeRequest], encoded: Encoded) -> list[tuple[str, float]]:
        """Return for each request its language with probability 1, or the detected language."""
        given = all(request.language is not None for request in requests)
        detected = [{}] * len(requests) if given else self._languages(encoded)
        return [
            (request.language, 1.0) if request.language is not None else likeliest(probabilities)
            for request, probabilities in zip(requests, detected, strict=True)
        ]

    def _languages(self, encoded: Encoded) -> list[dict[str, float]]:
        if not self._multilingual:
            return [{_ENGLISH: 1.0}] * encoded.rows
        return [
            {token[2:-2]: probability for token, probability in row}  # <|en|>
            for row in self._model.detect_language(encoded.states)
        ]

    def _shape(self, request: DecodeRequest, sizes: WindowSizes) -> Shape:
        window_s = sizes.window_s(len(request.samples), final=request.final)
        return Shape(window_s, len(self._hint_tokens(request)), request.final, len(self._prefix_tokens(request)))

    def _prefix_tokens(self, request: DecodeRequest) -> tuple[int, ...]:
        """Return the tokens that the answer begins with; none if requests share calls, as their numbers may differ."""
        return self._tokens_of(prefix_text(request)) if self.max_batch == 1 else ()

    def _hint_tokens(self, request: DecodeRequest) -> tuple[int, ...]:
        return hint_tokens(request, self._tokens_of)

    def _task(self, request: DecodeRequest, language: str) -> str:
        """Return the model's task: English speech is never translated.

        Raises EngineFailed if the model cannot do it.
        """
        if request.task == TRANSCRIBE or language == _ENGLISH or not self._multilingual:
            return TRANSCRIBE
        if not self.translates:
            raise EngineFailed(f"the model {self.model} does not translate")
        return TRANSLATE

    def _prompt(self, prefix: tuple[int, ...], language: str, task: str) -> list[int]:
        tokenizer = self._tokenizers[language, task]
        before = [tokenizer.sot_prev, *prefix] if prefix else []
        return [*before, *tokenizer.sot_sequence, tokenizer.no_timestamps]

    def _encode_text(self, text: str) -> tuple[int, ...]:
        """Return the tokens of a client's *text*, without the model's own marks, such as <|startoftranscript|>.

        A second <|startoftranscript|> would make CTranslate2 refuse the whole call, with all other requests in it.
        """
        tokens = self._tokenizer.encode(" " + text.strip()) if text.strip() else ()
        return tuple(token for token in tokens if token < self._tokenizer.eot)  # the first of the marks


def _select_spoken(words: Sequence[Word], request: DecodeRequest, task: str) -> tuple[Word, ...]:
    """Return those of *words* that can have been said. The times of a translation do not show that they were."""
    said = without_echo(words, request.voiced)
    if task == TRANSLATE:
        return said
    said = before_timeless(said)
    if request.voiced and request.final and request.turn is None:
        said = place_in_speech(said, request.start, request.start + len(request.samples), request.voiced)
    return said

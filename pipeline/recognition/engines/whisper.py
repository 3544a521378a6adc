"""Whisper on CTranslate2, below faster-whisper's transcribe(): windows at their real length, batched over sessions.

One call: log-mel -> encode -> (which language?) -> generate -> gates, a second look where they ask for one -> align on
the same encoder output -> words. Use bootstrap.prepare() before this module is imported.
"""

import logging
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
from faster_whisper import WhisperModel
from faster_whisper.tokenizer import Tokenizer
from faster_whisper.transcribe import get_suppressed_tokens

from pipeline.audio import RATE, Samples
from pipeline.errors import EngineFailed, ModelUnavailable
from pipeline.recognition.coverage import UNHEARD, unheard
from pipeline.recognition.engine import DecodeRequest, Heard
from pipeline.recognition.engines.alignment import Piece, words_of
from pipeline.recognition.engines.bootstrap import (
    cores,
    keep_memory,
    load_cuda,
    polite_threads,
    replica_count,
    thread_count,
)
from pipeline.recognition.engines.gates import DOUBT, NO_SPEECH, VOICE_S, failed_gate, is_no_speech, without_echo
from pipeline.recognition.engines.mel import FRAMES_PER_S, HOP, LogMel
from pipeline.recognition.engines.prompts import HINT_TOKENS, Shape, max_length, window_for
from pipeline.recognition.engines.windows import FULL, Fit
from pipeline.recognition.scoring import spoken
from pipeline.words import Word

log = logging.getLogger(__name__)

_SECOND_S = 20  # the least window of a second look
_BEAM = 5  # of finals, and of partials where each has a call of its own
_MOST = {"cpu": 1, "cuda": 24}  # on a CPU windows that share a call cost as much as alone, and wait for each other
_TEXTS_REMEMBERED = 1024  # encoded prompts kept: each is asked for twice, by the scheduler and by the decoder
_NO_REPEAT = 4  # tokens: what a loop is cut at when there is no other way left to look at it
_ALIGN_BEYOND = FRAMES_PER_S // 5  # frames of padding that word times may be sought in: the last word's end
_MARGIN = RATE // 5  # samples heard before and after speech that had no words
_MOMENT = RATE // 20  # samples of silence before a second look: the encoder, whose frames fall elsewhere, hears anew


@dataclass(frozen=True, slots=True)
class _Encoded:
    """Encoder outputs of one call; every member has the same window."""

    states: Any  # ctranslate2.StorageView
    window_s: int
    lead: int  # samples of silence before each member
    rows: int


@dataclass(frozen=True, slots=True)
class _Hypothesis:
    """What the decoder said of one request. *row* is its place in *encoded*."""

    tokens: tuple[int, ...]
    text: str
    language: str
    language_probability: float
    avg_logprob: float
    no_speech_prob: float
    failed: str | None
    encoded: _Encoded
    row: int


def chosen_device(device: str | None) -> str:
    """The device that is used, cpu or cuda: None takes cuda where there are a GPU and CUDA's libraries.

    Raises ModelUnavailable where cuda is wanted and cannot be had.
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
        fit: Fit = FULL,
    ) -> None:
        """Load the model in *folder*; raises ModelUnavailable when its files are not a Whisper model's.

        *compute_type* None is int8 on a CPU, float16 on CUDA. *threads* None lets a call have as many as the
        size of the model calls for. Which *fit* suits the model is measured in windows.py; full windows suit every
        Whisper.
        """
        self.model = model
        self.fit = fit
        self.device = chosen_device(device)
        self.compute_type = compute_type or ("float16" if self.device == "cuda" else "int8")
        self.most = _MOST[self.device]
        try:
            per_call = thread_count(threads, (folder / "model.bin").stat().st_size)
            on_cpu = self.device == "cpu"
            self.replicas = replica_count(cores(), per_call) if on_cpu else 1
            self.replicas_amid_speech = min(self.replicas, max(1, (cores() - 1) // per_call)) if on_cpu else 1
            with polite_threads():
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
        self.languages = frozenset(known if self._multilingual else ("en",))
        self._tokenizers = {
            code: Tokenizer(loaded.hf_tokenizer, self._multilingual, "transcribe", code) for code in self.languages
        }
        self._tokenizer = self._tokenizers["en"] if "en" in self.languages else next(iter(self._tokenizers.values()))
        self._suppressed = _suppressed(self._tokenizer)
        self._tokens_of = lru_cache(_TEXTS_REMEMBERED)(self._encode_text)

    @property
    def job(self) -> int:
        return self.fit.job

    def bucket(self, request: DecodeRequest) -> Hashable:
        """The request's Shape: equal window, equal prompt length, equal search."""
        return self._shape(request, self.fit)

    def hear(self, requests: Sequence[DecodeRequest], *, fit: Fit | None = None) -> list[Heard]:
        """See Engine. Finals that fail a gate or are doubtful are heard once more, and so is speech without words.

        *fit* says in which windows; None: in those that suit the model.
        """
        fit = fit or self.fit  # another thread may set it meanwhile
        try:
            answers = self._heard(requests, fit)
            return [
                self._completed(request, heard, fit) if request.final else heard
                for request, heard in zip(requests, answers, strict=True)
            ]
        except RuntimeError as error:
            raise EngineFailed(f"CTranslate2 failed: {error}") from error

    def _heard(self, requests: Sequence[DecodeRequest], fit: Fit) -> list[Heard]:
        # The windows of requests that were put together before the fit changed may differ: the longest holds them all.
        shape = max((self._shape(request, fit) for request in requests), key=lambda shape: shape.window_s)
        hypotheses = self._decode(requests, shape)
        for row, (request, first) in enumerate(zip(requests, hypotheses, strict=True)):
            if request.final and _worth_another_look(first):
                hypotheses[row] = self._second_look(request, first, shape)
        words = self._aligned(requests, hypotheses)
        return [
            Heard(
                words=its_words,
                language=said.language,
                language_probability=said.language_probability,
                avg_logprob=said.avg_logprob,
                no_speech_prob=said.no_speech_prob,
                rejected=said.failed,
            )
            for said, its_words in zip(hypotheses, words, strict=True)
        ]

    def _completed(self, request: DecodeRequest, heard: Heard, fit: Fit) -> Heard:
        """*heard* with the words of speech that it has none for, where a look at that speech alone gives them."""
        given_up = request.start
        while stretch := next((one for one in unheard(heard.words, request.voiced) if one[0] >= given_up), None):
            given_up = stretch[1]
            first = max(stretch[0] - _MARGIN, request.start)
            last = min(stretch[1] + _MARGIN, request.start + len(request.samples))
            part = replace(
                request,
                samples=request.samples[first - request.start : last - request.start],
                start=first,
                language=heard.language or request.language,
            )
            [missed] = self._heard([part], fit)
            fresh = [word for word in missed.words if stretch[0] <= (word.start + word.end) // 2 < stretch[1]]
            if fresh:
                heard = replace(heard, words=_merged(heard.words, fresh), rejected=None)
                given_up = max(fresh[-1].end, stretch[0] + UNHEARD)
        return heard

    def detect_language(self, windows: Sequence[Samples]) -> tuple[str, float]:
        """See Engine. Each window counts by its length."""
        if not self._multilingual:
            return "en", 1.0
        sums: dict[str, float] = {}
        try:
            for window in windows:
                encoded = self._encode([window], self.fit.window_s(len(window), final=True))
                for language, probability in self._languages(encoded)[0].items():
                    sums[language] = sums.get(language, 0.0) + probability * len(window)
        except RuntimeError as error:
            raise EngineFailed(f"CTranslate2 failed: {error}") from error
        language = max(sums, key=lambda code: (sums[code], code))
        return language, round(sums[language] / sum(map(len, windows)), 3)

    def close(self) -> None:
        """The model's memory is given back."""
        self._model.unload_model()

    def _decode(
        self, requests: Sequence[DecodeRequest], shape: Shape, *, lead: int = 0, **search: int
    ) -> list[_Hypothesis]:
        encoded = self._encode([request.samples for request in requests], shape.window_s, lead)
        languages = self._languages_of(requests, encoded)
        prompts = [
            [*self._prompt(self._prefix(request)[: shape.prefix], language), *self._said(request)[: shape.said]]
            for request, (language, _) in zip(requests, languages, strict=True)
        ]
        results = self._model.generate(
            encoded.states,
            prompts,
            beam_size=_BEAM if shape.final or self.most == 1 else 1,
            max_length=max_length(len(prompts[0]), shape.most_tokens),
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
        place: tuple[_Encoded, int],
    ) -> _Hypothesis:
        said = result.sequences_ids[0]  # with the tokens that it was given as its beginning
        tokens = self._without_echo(tuple(token for token in said if token < self._tokenizer.eot), request)
        text = self._tokenizer.decode(tokens)
        # CTranslate2 divides by the tokens it shows; the end token counts too (as in faster-whisper).
        avg_logprob = result.scores[0] * len(said) / (len(said) + 1)
        failed = failed_gate(
            text,
            seconds=len(request.samples) / RATE,
            avg_logprob=avg_logprob,
            no_speech_prob=result.no_speech_prob,
            cut_off=len(tokens) >= shape.most_tokens,
            voiced_s=_voiced_s(request),
        )
        return _Hypothesis(tokens, text, *language, avg_logprob, result.no_speech_prob, failed, *place)

    def _without_echo(self, tokens: tuple[int, ...], request: DecodeRequest) -> tuple[int, ...]:
        """*tokens* without the last phrase said over and over in less time than anybody needs for it."""
        voiced_s = _voiced_s(request) if request.voiced else len(request.samples) / RATE
        texts, parts = self._tokenizer.split_to_word_tokens([*tokens, self._tokenizer.eot])
        words = [" ".join(spoken(text)) for text in texts[:-1]]
        at = [index for index, word in enumerate(words) if word]  # marks are words of their own
        kept = without_echo([words[index] for index in at], voiced_s=voiced_s)
        if kept == len(at):
            return tokens
        return tuple(token for part in parts[: at[kept]] for token in part)

    def _second_look(self, request: DecodeRequest, first: _Hypothesis, shape: Shape) -> _Hypothesis:
        """The better of *first* and a look at the same audio a moment later, without text before it.

        It is a longer look, unless the first was as long already. A loop that is looked at in the same way again may
        not repeat itself. What was merely doubtful may: people do repeat words.
        """
        length = len(request.samples)
        unaided = Shape(max(shape.window_s, window_for(length, _SECOND_S)), 0, final=True)
        lead = min(_MOMENT, unaided.window_s * RATE - length)
        cure = {"no_repeat_ngram_size": _NO_REPEAT} if shape == unaided and first.failed else {}
        if shape == unaided and not lead and not cure:
            return first  # it would be the same
        [second] = self._decode([request], unaided, lead=lead, **cure)
        return _better(first, second, _voiced_s(request))

    def _aligned(self, requests: Sequence[DecodeRequest], hypotheses: Sequence[_Hypothesis]) -> list[tuple[Word, ...]]:
        """The words of each hypothesis that may stand, one align() for each encoder output and language in it."""
        words: list[tuple[Word, ...]] = [()] * len(hypotheses)
        standing = [index for index, said in enumerate(hypotheses) if said.tokens and said.failed is None]
        groups: dict[tuple[int, str], list[int]] = {}
        for index in standing:
            groups.setdefault((id(hypotheses[index].encoded), hypotheses[index].language), []).append(index)
        for (_, language), members in groups.items():
            encoded = hypotheses[members[0]].encoded
            tokens: list[tuple[int, ...]] = [()] * encoded.rows  # rows of another language are left empty
            frames = [2] * encoded.rows
            for index in members:
                row = hypotheses[index].row
                tokens[row] = hypotheses[index].tokens
                content = -(-(encoded.lead + len(requests[index].samples)) // HOP) + _ALIGN_BEYOND
                frames[row] = min(content, encoded.window_s * FRAMES_PER_S)
            results = self._model.align(encoded.states, self._tokenizers[language].sot_sequence, tokens, frames)
            for index in members:
                words[index] = self._words(requests[index], hypotheses[index], results[hypotheses[index].row])
        return words

    def _words(self, request: DecodeRequest, said: _Hypothesis, aligned: Any) -> tuple[Word, ...]:
        tokenizer = self._tokenizers[said.language]
        texts, tokens = tokenizer.split_to_word_tokens([*said.tokens, tokenizer.eot])
        return words_of(
            [Piece(text, len(parts)) for text, parts in zip(texts[:-1], tokens[:-1], strict=True)],
            aligned.alignments,
            aligned.text_token_probs,
            request.samples,
            start=request.start,
            lead=said.encoded.lead,
            language=said.language,
            final=request.final,
        )

    def _encode(self, windows: Sequence[Samples], window_s: int, lead: int = 0) -> _Encoded:
        frames = window_s * FRAMES_PER_S
        features = np.stack([self._mel(np.pad(samples, (lead, 0)), frames) for samples in windows])
        states = self._model.encode(ctranslate2.StorageView.from_array(features))
        return _Encoded(states, window_s, lead, len(windows))

    def _languages_of(self, requests: Sequence[DecodeRequest], encoded: _Encoded) -> list[tuple[str, float]]:
        """The language that was asked for, with probability 1, or the one that is heard."""
        if all(request.language is not None for request in requests):
            return [(request.language or "", 1.0) for request in requests]
        heard = self._languages(encoded)
        return [
            (request.language, 1.0) if request.language is not None else _likeliest(probabilities)
            for request, probabilities in zip(requests, heard, strict=True)
        ]

    def _languages(self, encoded: _Encoded) -> list[dict[str, float]]:
        if not self._multilingual:
            return [{"en": 1.0}] * encoded.rows
        return [
            {token[2:-2]: probability for token, probability in row}  # <|en|>
            for row in self._model.detect_language(encoded.states)
        ]

    def _shape(self, request: DecodeRequest, fit: Fit) -> Shape:
        window_s = fit.window_s(len(request.samples), final=request.final)
        return Shape(window_s, len(self._prefix(request)), request.final, len(self._said(request)))

    def _said(self, request: DecodeRequest) -> tuple[int, ...]:
        """The tokens that the answer begins with: none where requests share calls, for which they must be as many."""
        return self._tokens_of(request.said) if self.most == 1 else ()

    def _prefix(self, request: DecodeRequest) -> tuple[int, ...]:
        return self._tokens_of(request.hint)[:HINT_TOKENS]

    def _prompt(self, prefix: tuple[int, ...], language: str) -> list[int]:
        tokenizer = self._tokenizers[language]
        before = [tokenizer.sot_prev, *prefix] if prefix else []
        return [*before, *tokenizer.sot_sequence, tokenizer.no_timestamps]

    def _encode_text(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(" " + text.strip())) if text.strip() else ()


def _likeliest(probabilities: dict[str, float]) -> tuple[str, float]:
    language = max(probabilities, key=lambda code: (probabilities[code], code))
    return language, round(probabilities[language], 3)


def _worth_another_look(said: _Hypothesis) -> bool:
    """Loops and doubtful answers are."""
    if said.failed is not None:
        return said.failed in ("repetition", "too_fast")
    return said.avg_logprob < DOUBT


def _better(first: _Hypothesis, second: _Hypothesis, voiced_s: float) -> _Hypothesis:
    """Of two looks at the same audio the one that may stand, then the likelier one; the greater doubt counts for both.

    Where the model doubts that there is speech and the two have no word in common, neither is believed, unless the
    voice detector heard somebody.
    """
    if second.failed is not None or first.failed is not None:
        return second if second.failed is None else first
    likelier = max(first, second, key=lambda said: said.avg_logprob)
    no_speech_prob = max(first.no_speech_prob, second.no_speech_prob)
    apart = not set(first.text.casefold().split()) & set(second.text.casefold().split())
    doubted = apart and no_speech_prob > NO_SPEECH and voiced_s < VOICE_S
    if doubted or is_no_speech(
        likelier.text, avg_logprob=likelier.avg_logprob, no_speech_prob=no_speech_prob, voiced_s=voiced_s
    ):
        return replace(likelier, failed="no_speech")
    return likelier


def _voiced_s(request: DecodeRequest) -> float:
    """Seconds in which somebody is known to speak."""
    return sum(last - first for first, last in request.voiced) / RATE


def _merged(words: Sequence[Word], fresh: Sequence[Word]) -> tuple[Word, ...]:
    """*words* with *fresh* ones where they were spoken. A word that reached over them ends where they begin."""
    first, last = fresh[0].start, fresh[-1].end
    before = [replace(word, end=min(word.end, max(word.start, first))) for word in words if word.start < first]
    after = [replace(word, start=max(word.start, min(last, word.end))) for word in words if word.start >= first]
    return (*before, *fresh, *after)


def _suppressed(tokenizer: Tokenizer) -> list[int]:
    """Tokens that are never speech: symbols, and the model's own marks but the end."""
    return [token for token in get_suppressed_tokens(tokenizer, [-1]) if token is not None]

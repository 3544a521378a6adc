"""Words, finished files and errors in Deepgram's form, for answers, callbacks and the live WebSocket.

The form is documented at developers.deepgram.com/reference.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias
from uuid import NAMESPACE_URL, uuid5

import orjson

from pipeline.attribution import SpeakerTimesByChannel, by_speaker, probability_of, speech_by_language
from pipeline.documents.formats import search_objects, word_object
from pipeline.documents.paragraphs import paragraphs_of
from pipeline.text.options import LABELS
from pipeline.timeline import unpack
from pipeline.transcription import Transcription
from pipeline.words import Segment, Word
from server.clock import iso
from server.http.operation import ErrorShape
from server.http.problems import CODES, UNDECODABLE, Problem
from server.http.sockets import GOING_AWAY, SocketErrorStyle
from server.model.jobs import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepgramShape:
    """Which optional members the answer about a file has."""

    punctuated: bool = False
    paragraphs: bool = False
    utterances: bool = False
    language: bool = False  # the detected language
    sha256: str = ""  # that of the file; empty for an address


Message: TypeAlias = dict[str, Any]
Phrase: TypeAlias = Sequence[Mapping[str, Any]]
"""The words of a segment."""

NAME = "deepgram"
"""The name of the dialect."""

UNPROCESSABLE, BAD_REQUEST = 422, 400
REQUEST_ID = "dg-request-id"
THEIR_CODES = {
    "invalid_key": "INVALID_AUTH",
    "missing_credentials": "INVALID_AUTH",
    "source_failed": "REMOTE_CONTENT_ERROR",
}

_MARKS = re.compile(r"^\W+|(?<!\W)\W+$")
"""Marks around a word. The lookbehind keeps the time linear for text with many marks."""
_LABEL = re.compile("|".join(map(re.escape, LABELS.values())))


def model_uuid(model: str) -> str:
    return str(uuid5(NAMESPACE_URL, f"https://scribewire.dev/models/{model}"))


def model_info(model: str) -> Mapping[str, str]:
    return {"name": f"scribewire-{model}", "version": "1", "arch": "whisper"}


def speaker_members(frame: Mapping[str, Any]) -> Message:
    """The members that name the speaker, by Deepgram's numbers: 0 for S1, 1 for S2, ...; none if it is unknown."""
    members = {} if frame.get("speaker") is None else {"speaker": int(frame["speaker"][1:]) - 1}
    return members | {name: frame[name] for name in ("speaker_confidence",) if name in frame}


def word_message(word: Mapping[str, Any], *, punctuated: bool, speakers: bool = False) -> Message:
    """A word in Deepgram's form. *punctuated* adds the word with marks and capitals, *speakers* its speaker."""
    shown = {
        "word": _plain_word(word["word"]) or word["word"],
        "start": word["start"],
        "end": word["end"],
        "confidence": word["probability"],
        **({"language": word["language"]} if "language" in word else {}),
        **(speaker_members(word) if speakers else {}),
    }
    return {**shown, "punctuated_word": word["word"]} if punctuated else shown


def transcript_of(words: Iterable[Mapping[str, Any]], *, punctuated: bool) -> str:
    parts = (
        (" " if word.get("spaced", True) else "", word["word"] if punctuated else plain(word["word"])) for word in words
    )
    return "".join(space + text for space, text in parts).strip()


def plain(text: str) -> str:
    """*text* in lower case without punctuation around its words. Labels of redacted words stay as they are."""
    return " ".join(bare for part in text.split() if (bare := _plain_word(part)))


def _plain_word(text: str) -> str:
    label = _LABEL.match(text)
    return label[0] if label else _MARKS.sub("", text).lower()


def alternative(
    words: Sequence[Mapping[str, Any]], *, punctuated: bool, more: str = "", speakers: bool = False
) -> Message:
    """The member `alternatives` for *words*. *more* is the text after them that may still change.

    It has the languages of the words, that of most words first, if they name any.
    """
    said = transcript_of(words, punctuated=punctuated)
    rest = more if punctuated else plain(more)
    sure = [word["probability"] for word in words]
    spoken = Counter(word["language"] for word in words if "language" in word)
    return {
        "transcript": f"{said} {rest}".strip(),
        "confidence": round(sum(sure) / len(sure), 4) if sure else 0.0,
        **({"languages": [language for language, _ in spoken.most_common()]} if spoken else {}),
        "words": [word_message(word, punctuated=punctuated, speakers=speakers) for word in words],
    }


def file_answer(job: Job, bodies: Sequence[bytes], shape: DeepgramShape) -> Message:
    """The answer about a finished file, made from the job's stored timeline."""
    past = Transcription.of(map(unpack, bodies))
    chunks = past.chunks()
    spoken: dict[int, list[Segment]] = {chunk.channel or 0: [] for chunk in chunks}
    for chunk in chunks:
        spoken[chunk.channel or 0] += chunk.segments
    turns = past.turns
    if turns is not None:
        spoken = {number: by_speaker(segments, turns) for number, segments in spoken.items()}
    times = None if turns is None else SpeakerTimesByChannel(turns)
    channels = [_channel(job, spoken[number], shape, times) for number in sorted(spoken)]
    results: dict[str, Any] = {"channels": channels}
    if shape.utterances:
        results["utterances"] = _utterances(job, spoken, shape, times)
    return {"metadata": {**_metadata(job, shape), "channels": len(spoken)}, "results": results}


def _utterances(
    job: Job, spoken: Mapping[int, Sequence[Segment]], shape: DeepgramShape, times: SpeakerTimesByChannel | None
) -> Sequence[Mapping[str, Any]]:
    """The segments of all channels in the order of their starts."""
    phrases = ((_phrase(segment, times), number) for number, segments in spoken.items() for segment in segments)
    return [
        {"id": f"{job.id}-{count}", "channel": number, **_utterance(phrase, shape)}
        for count, (phrase, number) in enumerate(sorted(phrases, key=lambda one: float(one[0][0]["start"])))
    ]


def callback_body(job: Job, bodies: Sequence[bytes] | None) -> Message:
    """The body of a callback: the answer in the shape that the order contains, or an error if there are no results."""
    known = {member.name for member in fields(DeepgramShape)}
    shape = {name: value for name, value in (job.order.callback or {}).items() if name in known}
    return failure(job) if bodies is None else file_answer(job, bodies, DeepgramShape(**shape))


def failure(job: Job) -> Message:
    """The callback of a job without results, because it failed or its results were erased after a delivery."""
    gone = ("output_not_found", "the results of this job are not kept")
    code, message = gone if job.error is None else (job.error.code, job.error.message)
    return {"err_code": code.upper(), "err_msg": message, "request_id": job.id}


def search_member(segments: Sequence[Segment], terms: Sequence[str]) -> Message:
    """The member `search` with the places of *terms* in a channel; no member if there are no terms."""
    return {"search": search_objects(segments, terms)} if terms else {}


def hinted_member(languages: Sequence[str]) -> Message:
    """The member with the languages that the request allows; no member if it allows all."""
    return {"languages_hinted": [*languages]} if languages else {}


def _phrase(segment: Segment, times: SpeakerTimesByChannel | None) -> Phrase:
    words = [word_object(word) for word in segment.words]
    if times is None or segment.voice is None:
        return words
    shares = [times.share_of(word, segment.voice, segment.channel) for word in segment.words]
    return [
        {**word, "speaker": segment.voice, "speaker_confidence": round(share, 4)}
        for word, share in zip(words, shares, strict=True)
    ]


def _channel(
    job: Job, segments: Sequence[Segment], shape: DeepgramShape, times: SpeakerTimesByChannel | None
) -> Mapping[str, Any]:
    words = [word for segment in segments for word in _phrase(segment, times)]
    said = alternative(words, punctuated=shape.punctuated, speakers=times is not None)
    if shape.paragraphs:
        said["paragraphs"] = _paragraphs(segments, shape)
    order = job.order
    shown = {**search_member(segments, order.text.search), **hinted_member(order.languages), "alternatives": [said]}
    if not shape.language:
        return shown
    language = next(iter(speech_by_language(segments)), job.language)
    sure = probability_of(language, segments)
    return {
        **shown,
        "detected_language": language,
        "language_confidence": job.language_probability if sure is None else round(sure, 4),
    }


def _metadata(job: Job, shape: DeepgramShape) -> Mapping[str, Any]:
    name = job.model or ""
    model = model_uuid(name)
    return {
        "transaction_key": "deprecated",
        "request_id": job.id,
        "sha256": shape.sha256,
        "created": iso(job.created_at),
        "duration": job.duration_s,
        "models": [model],
        "model_info": {model: model_info(name)},
    }


def _utterance(phrase: Phrase, shape: DeepgramShape) -> Mapping[str, Any]:
    times = {"start": phrase[0]["start"], "end": phrase[-1]["end"]}
    speakers = "speaker_confidence" in phrase[0]
    who = {name: value for name, value in speaker_members(phrase[0]).items() if name == "speaker"} if speakers else {}
    return {**times, **who, **alternative(phrase, punctuated=shape.punctuated, speakers=speakers)}


def _paragraphs(segments: Sequence[Segment], shape: DeepgramShape) -> Mapping[str, Any]:
    shown, texts, speaking = [], [], None
    for paragraph in paragraphs_of(segments):
        sentences = [_sentence(words, shape) for words in paragraph.sentences]
        text = " ".join(sentence["text"] for sentence in sentences)
        times = {"start": sentences[0]["start"], "end": sentences[-1]["end"]}
        who = {} if paragraph.voice is None else speaker_members({"speaker": paragraph.voice})
        changed, speaking = paragraph.voice not in (None, speaking), paragraph.voice
        texts.append(f"Speaker {who['speaker']}: {text}" if changed else text)
        shown.append({"sentences": sentences, **who, "num_words": len(paragraph.words), **times})
    return {"transcript": "\n\n".join(["", *texts]).removeprefix("\n"), "paragraphs": shown}


def _sentence(words: Sequence[Word], shape: DeepgramShape) -> Message:
    said = [word_object(word) for word in words]
    text = transcript_of(said, punctuated=shape.punctuated)
    return {"text": text, "start": said[0]["start"], "end": said[-1]["end"]}


def error_body(problem: Problem, request_id: str) -> Mapping[str, Any]:
    code = THEIR_CODES.get(problem.code, problem.code.upper())
    return {"err_code": code, "err_msg": problem.detail, "request_id": request_id}


def error_headers(problem: Problem, request_id: str) -> Mapping[str, str]:
    """The error in headers too, because clients see no body of a refused WebSocket."""
    said = problem.detail.encode("ascii", "replace").decode().replace("\n", " ").replace("\r", " ")
    return {REQUEST_ID: request_id, "dg-error": said}


# Deepgram has no 422, and answers 400 to bytes that are no audio too.
REFUSED = [code for code, (status, _) in CODES.items() if status == UNPROCESSABLE or code in UNDECODABLE]
SHAPE = ErrorShape(
    schema="DeepgramError", body=error_body, headers=error_headers, statuses=dict.fromkeys(REFUSED, BAD_REQUEST)
)


def close_code(problem: Problem) -> int:
    if problem.code == "shutting_down":
        return GOING_AWAY
    return 1008 if problem.code in UNDECODABLE else 1011


def _error_frame(problem: Problem, _path: str, request_id: str) -> bytes:
    said = {"type": "Error", "variant": problem.code, "description": problem.detail, "request_id": request_id}
    return orjson.dumps(said)


ERROR_STYLE = SocketErrorStyle(refusal=SHAPE, error_frame=_error_frame, close_code=close_code)

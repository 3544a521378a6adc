"""Makes the recognition of live sessions from one environment's models."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pipeline.audio import Windows, position
from pipeline.events import Warned
from pipeline.ingest.crosstalk import LIVE_AHEAD, CrosstalkGate
from pipeline.ingest.isolation import Isolation
from pipeline.ingest.vad import LiveVad
from pipeline.languages import ENGLISH
from pipeline.live_stream import LiveStream, MultichannelStream
from pipeline.recognition.engine import SCRIPTED
from pipeline.recognition.model_set import ModelSet
from pipeline.recognition.routing import LanguageRouter
from pipeline.recognition.stream import StreamCore
from pipeline.recognition.stream_options import BALANCED, StreamOptions, StreamStart, with_latency, with_turn_checks
from pipeline.recognition.turns import EAGERNESS, TurnEndDetector, TurnOptions
from pipeline.speakers.known import learn_voices
from pipeline.speakers.live import LabelledWord, LiveSpeakers, SpeakerState
from pipeline.speakers.windows import SpeakerModels
from pipeline.text.options import USUAL_SETTINGS, TextSettings
from pipeline.text.rewriting import TextRewriter
from pipeline.text.stage import TextStage
from server.capacity import Capacity
from server.jobs.probing import speaker_options
from server.model.orders import SEMANTIC, Order

UNMEASURED = "which windows suit the model {} is not known: stop the server, and `scribewire doctor --save` measures it"
UNAVAILABLE = Warned("endpointing_unavailable", "turns end by silence: the model that knows their end is not installed")


LiveRecognition: TypeAlias = LiveStream | MultichannelStream
"""The recognition of one live stream: of its channels mixed, or of each channel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveModels:
    """An environment's models and settings for live sessions."""

    engine: str
    models: ModelSet  # those that orders may name
    vad: LiveVad | None  # None: everything counts as speech
    speakers: SpeakerModels | None = None  # None: not installed, or a scripted engine, whose speakers are scripted too
    unmeasured: Collection[str] = ()  # the names of models that use full windows until they are measured
    capacities: Mapping[str, Capacity] = field(default_factory=dict)  # what was measured of this machine, by model
    limit: int | None = None  # of live sessions, from the settings; None: what was measured
    text: TextSettings = USUAL_SETTINGS
    turn_ends: TurnEndDetector | None = None  # None: turns end by silence alone

    def model_for(self, order: Order) -> str:
        """The main model of a session: the one that its request names, or that of its language."""
        return order.model or self.models.name_for(order.language or self.models.first)

    @property
    def max_sessions(self) -> int | None:
        """The most sessions of the quickest model at once; None: neither set nor measured."""
        return self.limit or max((one.sessions for one in self.capacities.values()), default=None)

    @property
    def labels_speakers(self) -> bool:
        """Whether sessions may order speaker labels."""
        return self.speakers is not None or self.engine == SCRIPTED

    def diarizes_by_voice(self, order: Order) -> bool:
        """Whether a session with this order tells its speakers apart by voice."""
        return order.diarize and self.speakers is not None

    def load_of(self, order: Order) -> float:
        """The load of a session with this order, in sessions of the quickest model.

        A slower model, separate channels and speaker labels add to it.
        """
        capacity = self.capacities.get(self.model_for(order))
        if capacity is None:
            return float(order.counted_sessions)
        quickest = max(one.sessions for one in self.capacities.values())
        return order.counted_sessions * (1 + capacity.speakers_load * order.diarize) * quickest / capacity.sessions

    def live_speakers(
        self,
        order: Order,
        *,
        start: int,
        words: Sequence[LabelledWord],
        isolation: Isolation,
        recordings: Mapping[str, bytes],
        state: SpeakerState,
    ) -> LiveSpeakers:
        """Make the LiveSpeakers of a session whose order has speaker labels.

        It blocks for up to 0.5 s for each known person. Raises PipelineError.

        *start*: the position of the first sample, on every channel.
        *words*: all words so far.
        *recordings*: one of each known person, by name.
        *state*: what was stored of the session's voices.
        """
        known = learn_voices(isolation, self.speakers, recordings) if self.speakers is not None else {}
        options = speaker_options(order, known)
        assert options is not None
        origins = dict.fromkeys(order.live_channels, start)
        return LiveSpeakers(self.speakers, options, origins, words, state)

    def stream(self, order: Order, *, tenant: str, starts: Mapping[int | None, StreamStart]) -> LiveRecognition:
        """Make the live stream of a session. *starts*: where each channel begins; the audio begins with the first."""
        each = [self._stream(order, tenant, channel, start) for channel, start in starts.items()]
        if not order.separate:
            return each[0]
        gate = None if self.vad is None else CrosstalkGate(len(each), ahead=LIVE_AHEAD, together=1)
        return MultichannelStream(each, gate=gate)

    def _stream(self, order: Order, tenant: str, channel: int | None, start: StreamStart) -> LiveStream:
        """Make the stream of one channel, or with None of all channels together."""
        assert order.live is not None
        semantic = order.live.endpointing == SEMANTIC
        eagerness = EAGERNESS[order.live.eagerness] if semantic and self.turn_ends is not None else None
        options = StreamOptions(
            language=order.language,
            languages=frozenset(order.languages),
            task=order.task,
            hints=order.hints,
            longest=position(order.live.max_utterance_s),
            turns=TurnOptions(endpointing=position(order.live.endpointing_ms / 1000)),
            notes=self._notes(order, unavailable=semantic and eagerness is None) if channel in (None, 0) else (),
            warn_if_quiet=self.vad is not None,
            one_of_several=channel is not None,
        )
        patient = not (order.live.ends_at_once or self.vad is None)
        options = with_latency(options, order.live.latency or BALANCED, patient=patient)
        if eagerness is not None:
            options = with_turn_checks(options, eagerness)
        vad = self.vad.stream() if self.vad else _all_speech
        recogniser = LanguageRouter(self.models if order.model is None else self.models.only(order.model))
        rewriter = None
        if order.text.changes_words:
            written = ENGLISH if options.translates else options.language
            stage = TextStage(order.text, language=written, earlier=start.written, settings=self.text)
            rewriter = TextRewriter(stage, one_language=options.translates)
        core = StreamCore(options, start)
        return LiveStream(core, vad=vad, recogniser=recogniser, tenant=tenant, text=rewriter, turn_ends=self.turn_ends)

    def _notes(self, order: Order, *, unavailable: bool) -> tuple[Warned, ...]:
        """The warnings of a session with this order."""
        notes: tuple[Warned, ...] = (UNAVAILABLE,) if unavailable else ()
        if (model := self.model_for(order)) in self.unmeasured:
            notes += (Warned("windows_unmeasured", f"words come late: {UNMEASURED.format(model)}"),)
        return notes


def _all_speech(windows: Windows) -> list[float]:
    return [1.0] * len(windows)

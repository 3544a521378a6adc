"""Translates speech into English with the Whisper models that are here: the audio of a unit is decoded again."""

from pipeline.errors import EngineFailed, EngineTimeout
from pipeline.language_names import ENGLISH
from pipeline.recognition.engine import TRANSLATE, DecodeRequest
from pipeline.recognition.hints import NO_HINTS, Hints
from pipeline.recognition.model_set import ModelSet
from pipeline.recognition.scheduler import Urgency
from pipeline.text.options import NO_CHANGES, USUAL_SETTINGS, TextOptions, TextSettings
from pipeline.text.rewriting import SegmentRewriter
from pipeline.text.stage import TextStage
from pipeline.translation.translator import TranslationRequest, TranslatorUnavailable, UnusableAnswer
from pipeline.words import Segment, join_words

AROUND = 1600
"""Audio before and after a unit that is heard with it, 0.1 s."""


class ListeningTranslator:
    """The translator of one order. Its text goes through the text stage, as it is made of audio."""

    listens = True

    def __init__(
        self,
        models: ModelSet,
        *,
        urgency: Urgency,
        hints: Hints = NO_HINTS,
        text: TextOptions = NO_CHANGES,
        settings: TextSettings = USUAL_SETTINGS,
    ) -> None:
        self._models = models
        self._urgency = urgency
        self._hints = Hints(hints.keywords)
        self._text = text
        self._settings = settings

    async def translate(self, request: TranslationRequest) -> str:
        """See Translator. An English text of the audio, whatever the target."""
        samples = request.samples
        if samples is None or not len(samples):
            raise UnusableAnswer("the audio is gone")
        name = self._models.translating(request.source)
        if name is None:
            raise UnusableAnswer(f"no model here translates {request.source}")
        window = DecodeRequest(
            samples=samples,
            start=0,
            language=request.source,
            task=TRANSLATE,
            voiced=((0, len(samples)),),
            hints=self._hints,
        )
        try:
            model = await self._models.load(name)
            result = await model.recognise(window, tenant=request.tenant, urgency=self._urgency)
        except (EngineFailed, EngineTimeout) as error:
            raise TranslatorUnavailable(str(error)) from error
        if not result.words or not self._text.changes_words:
            return join_words(result.words)
        stage = TextStage(self._text, language=ENGLISH, patient=True, settings=self._settings)
        rewriter = SegmentRewriter(stage, one_language=True)
        segment = Segment(result.words, result.avg_logprob, result.no_speech_prob)
        segments = rewriter.rewrite([segment], language=None, reached=0)
        return join_words(word for one in [*segments, *rewriter.flush()] for word in one.words)

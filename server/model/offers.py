"""What clients may ask of an environment's engine, and how its languages are described to people."""

from collections.abc import Mapping
from dataclasses import dataclass

from server.model.orders import SILENCE

MAX_LISTED = 8
"""The most languages that a message lists; of more it has only their number."""

ENGLISH = frozenset({"en"})

DIARIZING_MODEL = "gpt-4o-transcribe-diarize"
"""OpenAI's name of a model that labels speakers. A request with this name gets labels from the model here."""

OPENAI_MODELS = (
    "whisper-1",
    "gpt-transcribe",
    "gpt-4o-transcribe",
    "gpt-4o-mini-transcribe",
    "gpt-4o-mini-transcribe-2025-12-15",
    DIARIZING_MODEL,
    "gpt-live-transcribe",
    "gpt-realtime-whisper",
)
"""What OpenAI's clients, LiveKit, Pipecat and Open WebUI ask for by default. Each stands for the model that is here."""

ANY_MODEL = "*"
"""Among the aliases it says that every name stands for the model that is here."""

PULL = "models pull base"
"""The command that messages recommend: base is small and knows 99 languages."""

PULL_TRANSLATING = "models pull large-v3"
"""The command for people whose multilingual model was not trained to translate: this one is as large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A model, as clients see it."""

    engine: str  # whisper or scripted
    model: str
    languages: frozenset[str]  # BCP 47 primary subtags
    translates: bool = False  # it can write English where another language is spoken
    speakers: bool = False  # speakers can be labelled by voice
    endpointing: tuple[str, ...] = (SILENCE,)  # what may end a turn of a live session
    bundled: bool = False  # it is the small model that comes with the installation
    warnings: tuple[Mapping[str, str], ...] = ()  # what every job of this engine is warned of
    aliases: tuple[str, ...] = OPENAI_MODELS  # other names of the model, for clients of other services

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the model that are listed: its aliases, then its own."""
        return tuple(dict.fromkeys(name for name in (*self.aliases, self.model) if name != ANY_MODEL))

    def has(self, name: str) -> bool:
        """Whether clients of other services may ask for the model by this *name*."""
        return name in self.names or ANY_MODEL in self.aliases

    @property
    def language_summary(self) -> str:
        """The languages in a few words: `English only`, `de, en, es` or `99 languages`."""
        if self.languages == ENGLISH:
            return "English only"
        if len(self.languages) <= MAX_LISTED:
            return ", ".join(sorted(self.languages))
        return f"{len(self.languages)} languages"

    def refusal(self, language: str) -> str:
        """Why *language* cannot be asked for, and what helps."""
        heard = "English (en) only" if self.languages == ENGLISH else self.language_summary
        said = f"the model {self.model} hears {heard}, not {language[:100]!r}"
        if self.engine == "whisper" and self.languages == ENGLISH:
            return f"{said}; scribewire {PULL} brings 99 languages"
        return f"{said}; GET /v1/models lists their codes" if len(self.languages) > MAX_LISTED else said

    @property
    def translation_refusal(self) -> str | None:
        """The reason why no translation is possible, and what helps.

        None if one is, also if the model knows English only.
        """
        if self.translates or self.languages == ENGLISH:
            return None
        said = f"the model {self.model} writes every language as it is spoken and does not translate"
        helps = f"; scribewire {PULL_TRANSLATING} brings one that does, and base, small and medium do too"
        return said + helps if self.engine == "whisper" else said

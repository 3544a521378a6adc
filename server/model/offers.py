"""What clients may ask of an environment's model, and how its languages are described to people."""

from collections.abc import Mapping
from dataclasses import dataclass

from server.model.orders import SILENCE

MAX_LISTED = 8
"""The most languages that a message lists; for more it gives only their number."""

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
"""The default models of OpenAI's clients, LiveKit, Pipecat and Open WebUI. Each name stands for the server's model."""

ANY_MODEL = "*"
"""As an alias it means that every name stands for the server's model."""

PULL = "models pull base"
"""The command that messages recommend: base is small and knows 99 languages."""

PULL_TRANSLATING = "models pull large-v3"
"""The command that messages recommend if a multilingual model cannot translate. The model of the command can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What clients may know of the server's model."""

    engine: str  # whisper or scripted
    model: str
    languages: frozenset[str]  # BCP 47 primary subtags
    translates: bool = False  # into English
    speakers: bool = False  # speakers can be labelled by voice
    endpointing: tuple[str, ...] = (SILENCE,)  # what may end a turn of a live session
    bundled: bool = False  # it is the small model that comes with the installation
    warnings: tuple[Mapping[str, str], ...] = ()  # for every job of this engine
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
        """Why *language* cannot be transcribed, and what the operator can do."""
        heard = "English (en) only" if self.languages == ENGLISH else self.language_summary
        said = f"the model {self.model} hears {heard}, not {language[:100]!r}"
        if self.engine == "whisper" and self.languages == ENGLISH:
            return f"{said}; scribewire {PULL} brings 99 languages"
        return f"{said}; GET /v1/models lists their codes" if len(self.languages) > MAX_LISTED else said

    @property
    def translation_refusal(self) -> str | None:
        """Why the model cannot translate, and what the operator can do; None if it can."""
        if self.translates:
            return None
        if self.languages == ENGLISH:
            said = f"the model {self.model} hears English only and does not translate"
            return f"{said}; scribewire {PULL} brings one that does" if self.engine == "whisper" else said
        said = f"the model {self.model} writes every language as it is spoken and does not translate"
        helps = f"; scribewire {PULL_TRANSLATING} brings one that does, and base, small and medium do too"
        return said + helps if self.engine == "whisper" else said

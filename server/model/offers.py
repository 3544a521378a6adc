"""What clients may ask of an environment's models, and how their languages are described to people."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
"""The default models of OpenAI's clients, LiveKit, Pipecat and Open WebUI. They leave the choice to the server."""

ANY_MODEL = "*"
"""As an alias it means that every name leaves the choice to the server."""

ANY_TARGET = "*"
"""Among the targets of translations: every language."""

PULL = "models pull base"
"""The command that messages recommend: base is small and knows 99 languages."""

PULL_BIGGER = "models pull small"
"""The same where base is here already."""

PULL_TRANSLATING = "models pull large-v3"
"""The command that messages recommend if a multilingual model cannot translate. The model of the command can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedModel:
    """One model that requests may name."""

    name: str
    languages: frozenset[str]  # BCP 47 primary subtags
    hears: frozenset[str] = frozenset()  # the languages that it hears where a request names no model
    translates: bool = False  # into English

    @property
    def summary(self) -> str:
        """Its languages in a few words."""
        return summary_of(self.languages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What clients may know of the server's models."""

    engine: str  # whisper or scripted
    model: str  # the default one
    languages: frozenset[str]  # of all models that are used without being named, as BCP 47 primary subtags
    translates: bool = False  # into English
    speakers: bool = False  # speakers can be labelled by voice
    endpointing: tuple[str, ...] = (SILENCE,)  # what may end a turn of a live session
    bundled: bool = False  # only models that come with the installation are used
    aliases: tuple[str, ...] = OPENAI_MODELS  # names of other services' models, which leave the choice to the server
    models: tuple[OfferedModel, ...] = ()  # all that requests may name, the default first; (): *model* alone
    unnamed: tuple[OfferedModel, ...] = ()  # the other models, where a request names this one
    translates_to: tuple[str, ...] = ()  # the languages of `translate_to`, as codes; (ANY_TARGET,): all

    @property
    def choices(self) -> tuple[OfferedModel, ...]:
        """All models that requests may name, the default first."""
        alone = OfferedModel(
            name=self.model, languages=self.languages, hears=self.languages, translates=self.translates
        )
        return self.models or (alone,)

    @property
    def names(self) -> tuple[str, ...]:
        """The names that are listed: the aliases, then those of the models."""
        listed = (*self.aliases, *(model.name for model in self.choices))
        return tuple(dict.fromkeys(name for name in listed if name != ANY_MODEL))

    def has(self, name: str) -> bool:
        """Whether requests may give this *name* as their model."""
        return name in self.names or ANY_MODEL in self.aliases

    def model_named(self, name: str) -> str | None:
        """The model that a request with this *name* uses; None if the name leaves the choice to the server."""
        return name if any(model.name == name for model in self.choices) else None

    def model_of(self, language: str | None) -> str:
        """The name of the model that hears *language* where a request names none."""
        return next((model.name for model in self.choices if language in model.hears), self.model)

    def of(self, name: str | None) -> "Offer":
        """The offer to a request that uses the model called *name*; None: no model is named."""
        chosen = next((model for model in self.choices if model.name == name), None)
        if chosen is None:
            return self
        alone = replace(chosen, hears=chosen.languages)
        return replace(
            self,
            model=chosen.name,
            languages=chosen.languages,
            translates=chosen.translates,
            models=(alone,),
            unnamed=tuple(model for model in self.choices if model is not chosen),
        )

    def unknown_model(self, name: str) -> str:
        """Why a request cannot use the model called *name*."""
        here = ", ".join(model.name for model in self.choices)
        return f"there is no model {name[:100]!r} here; the models are {here}"

    @property
    def summary(self) -> str:
        """Which model hears what, as the setting says it: `base,en=tiny.en`."""
        default, *others = self.choices
        few = [model for model in others if 0 < len(model.hears) <= MAX_LISTED]
        return ",".join([default.name, *(f"{code}={one.name}" for one in few for code in sorted(one.hears))])

    @property
    def language_summary(self) -> str:
        """The languages in a few words."""
        return summary_of(self.languages)

    def refusal(self, language: str, code: str) -> str:
        """Why *language*, a name of *code*, cannot be transcribed, and what the client or the operator can do."""
        heard = "English (en) only" if self.languages == ENGLISH else self.language_summary
        said = f"the model {self.model} knows {heard}, not {language[:100]!r}"
        if able := [model.name for model in self.unnamed if code in model.languages]:
            return f"{said}; {_instead(able)}"
        if self.engine == "whisper" and self.languages == ENGLISH:
            return f"{said}; base knows 99 languages (scribewire {PULL})"
        return f"{said}; GET /v1/models lists their codes" if len(self.languages) > MAX_LISTED else said

    def target_refusal(self, code: str) -> str | None:
        """Why nobody here translates into the language *code*, and what the operator can do; None if somebody does."""
        if ANY_TARGET in self.translates_to or code in self.translates_to:
            return None
        here = f"only into {', '.join(self.translates_to)}" if self.translates_to else "into no language"
        return f"nobody here translates into {code!r}, {here}; TRANSLATION_URL names a translator of more"

    @property
    def translation_refusal(self) -> str | None:
        """Why the model cannot translate, and what the operator can do; None if it can."""
        if self.translates:
            return None
        able = [model.name for model in self.unnamed if model.translates]
        if self.languages == ENGLISH:
            said = f"the model {self.model} knows English only and does not translate"
            if able:
                return f"{said}; {_instead(able)}"
            return f"{said}; scribewire {PULL} brings one that does" if self.engine == "whisper" else said
        said = f"the model {self.model} writes every language as it is spoken and does not translate"
        if able:
            return f"{said}; {_instead(able)}"
        helps = f"; scribewire {PULL_TRANSLATING} brings one that does, and base, small and medium do too"
        return said + helps if self.engine == "whisper" else said


def _instead(names: Sequence[str]) -> str:
    return f"name {' or '.join(names)} instead, or leave model out"


def summary_of(languages: frozenset[str]) -> str:
    """Languages in a few words: `English only`, `de, en, es` or `99 languages`."""
    if languages == ENGLISH:
        return "English only"
    return ", ".join(sorted(languages)) if len(languages) <= MAX_LISTED else f"{len(languages)} languages"

"""Knows which Whisper models are on this machine, which are used, and which of them hears which language.

load.py and `scribewire models` call it.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import ModelUnavailable
from pipeline.language_names import ENGLISH
from pipeline.recognition.engines.hub import (
    BY_HAND,
    NEEDED,
    ModelDownload,
    Pin,
    ReportProgress,
    cache_folder,
    digest_of,
    find_cached,
)
from pipeline.weights import INSTALLED, PUBLISHED

QUICK = "tiny.en"
"""The model for English if none is chosen: it makes as few errors as base, in half the time."""

USUAL = {"cpu": "base", "cuda": "large-v3-turbo"}
"""The model that suits each device. It is used without being named if it is on this machine."""

_UNTRANSLATING = ("turbo", "distil")  # large-v3-turbo was trained without translations, the distil ones on English

_PULLED = "scribewire-pulled.txt"  # in the cache folder: the names of the models that were pulled, the last one first
_ENGLISH_VOCABULARY = 51_864  # the size of the vocabulary of models that know English alone


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model whose files are on this machine."""

    name: str  # as users see it
    folder: Path
    bundled: bool = False  # installed with this program


@dataclass(frozen=True, slots=True)
class Choice:
    """The models to use, by names that locate() takes."""

    names: tuple[str, ...]  # the default first
    routes: Mapping[str, str]  # the model of each language that the default is not to hear


def read_choice(text: str) -> Choice:
    """Read a setting such as "large-v3-turbo, en=distil-large-v3": the default, then the models of single languages.

    A further name without a language is a model that only requests which name it use. Raises ModelUnavailable.
    """
    if Path(text).expanduser().is_dir():
        return Choice((text,), {})
    parts = [part.strip() for part in text.split(",") if part.strip()]
    routed = dict(re.findall(r"^([A-Za-z]{2,3})=(.+)$", "\n".join(parts), re.MULTILINE))
    routes = {language.lower(): name for language, name in routed.items()}
    names = [part for part in parts if not re.match(r"[A-Za-z]{2,3}=", part)]
    if not names:
        raise ModelUnavailable(f"{text!r} names no default model: one without a language must come first")
    return Choice(tuple(dict.fromkeys((*names, *routes.values()))), routes)


def translates(name: str) -> bool:
    """Return whether the multilingual model with this name was trained to translate.

    The files of a model do not say so. Therefore the names of models that were not are listed here.
    """
    return not any(part in name.lower() for part in _UNTRANSLATING)


def locate(model: str, *, cache_dir: Path | None, download_wait_s: float) -> LocalModel:
    """Return the model that *model* names: one of PUBLISHED, a folder, or owner/name on the hub.

    A model that is not on this machine is downloaded, with a log line every few seconds. Raises ModelUnavailable: at
    once for a wrong name or folder, after 12 s if the hub does not answer, and after *download_wait_s* if it is slow.
    """
    folder = Path(model).expanduser()
    if model not in PUBLISHED and folder.is_dir():
        missing = [name for name in NEEDED if not (folder / name).is_file()]
        if missing:
            raise ModelUnavailable(f"the folder {model} holds no {missing[0]}. {BY_HAND}")
        return LocalModel(folder.name, folder)
    repository = repository_of(model)
    return at_hand(model, cache_dir) or LocalModel(
        _display_name(model),
        ModelDownload(
            model=model, repository=repository, cache_dir=cache_dir, wait_s=download_wait_s, pin=pin_of(model)
        ).run(),
    )


def repository_of(model: str) -> str:
    """Return the name of *model* on the hub. Raises ModelUnavailable if it cannot be the name of a model."""
    repository = PUBLISHED[model].repository if model in PUBLISHED else model
    if repository.count("/") != 1 or repository.startswith(("/", ".", "~")):
        names = ", ".join(PUBLISHED)
        raise ModelUnavailable(f"there is no folder and no Whisper model called {model!r}; the names are {names}")
    return repository


def at_hand(model: str, cache_dir: Path | None) -> LocalModel | None:
    """Return the model of this name if it is bundled or in the cache, else None. The network is not used."""
    if (folder := bundled_folder(model)) is not None:
        return LocalModel(model, folder, bundled=True)
    folder = find_cached(repository_of(model), cache_dir, pin_of(model).revision)
    return None if folder is None else LocalModel(_display_name(model), folder)


def automatic(device: str, cache_dir: Path | None) -> Choice:
    """Return the models that are used when none is named. All are on this machine.

    The model that was pulled last hears every language that it knows. Where none was pulled, it is the one that suits
    the device, but English is heard by QUICK if that one is base. All others of the installation, and those that were
    pulled before, hear what is left, and requests may name them. Other models in the cache are not used: other programs
    put them there, and a large one would be far too slow on a CPU.
    """
    pulled = pulled_models(cache_dir)
    wanted = dict.fromkeys((*pulled[:1], USUAL[device], *INSTALLED, *pulled[1:]))
    names = [name for name in wanted if at_hand(name, cache_dir) is not None]
    if not names:
        return Choice((), {})
    first = names[0]
    default = next((name for name in names if not _is_english(name)), first)
    english = QUICK if QUICK in names and default == USUAL["cpu"] and first not in pulled else first
    routes = {} if english == default else {ENGLISH: english}
    return Choice(tuple(dict.fromkeys((default, *names))), routes)


def _is_english(name: str) -> bool:
    """Return whether a model of this name knows no other language than English."""
    return name in PUBLISHED and PUBLISHED[name].languages == 1


def languages_of(model: LocalModel) -> frozenset[str]:
    """Return the languages that a model knows, from its files. Raises ModelUnavailable if they are of another kind."""
    if _is_english(model.name):
        return frozenset({ENGLISH})
    try:
        text = (model.folder / "tokenizer.json").read_text(encoding="utf-8")
        [vocabulary] = model.folder.glob("vocabulary.*")
        words = vocabulary.read_text(encoding="utf-8")
        size = len(json.loads(words)) if vocabulary.suffix == ".json" else words.count("\n")
    except (OSError, ValueError) as error:
        raise ModelUnavailable(f"the folder {model.folder} holds no Whisper model: {error}") from None
    known = frozenset(re.findall(r"<\|([a-z]{2,3})\|>", text))
    return frozenset({ENGLISH}) if size == _ENGLISH_VOCABULARY or not known else known


def pull(model: str, *, cache_dir: Path | None, report_progress: ReportProgress, every_s: float) -> LocalModel:
    """Download *model* by its name unless it is on this machine, and let it hear first from now on when none is named.

    Raises ModelUnavailable.
    """
    found = at_hand(model, cache_dir) or LocalModel(
        _display_name(model),
        ModelDownload(
            model=model,
            repository=repository_of(model),
            cache_dir=cache_dir,
            wait_s=math.inf,
            pin=pin_of(model),
            report_progress=report_progress,
            every_s=every_s,
        ).run(),
    )
    note = cache_folder(cache_dir) / _PULLED
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text("".join(f"{name}\n" for name in dict.fromkeys((model, *pulled_models(cache_dir)))))
    except OSError as error:
        raise ModelUnavailable(f"{model} is in {found.folder}, but {note} cannot be written: {error}") from None
    return found


def pulled_models(cache_dir: Path | None) -> list[str]:
    """Return the names of the models that were pulled, the last one first."""
    try:
        names = (cache_folder(cache_dir) / _PULLED).read_text().split("\n")
        return [name for name in map(str.strip, names) if name and repository_of(name)]
    except (OSError, ValueError, ModelUnavailable):  # there is no note, or pull() did not write it
        return []


def bundled_folder(name: str) -> Path | None:
    """Return the folder of a model that came with the installation, or None if its packages are not there.

    Raises ModelUnavailable if they are damaged.
    """
    return INSTALLED[name].find() if name in INSTALLED else None


def bundled_is_sound(name: str) -> bool:
    """Return whether the bundled weights are the published ones, which reads all of them.

    Raises ModelUnavailable without them.
    """
    folder = bundled_folder(name)
    if folder is None:
        raise ModelUnavailable(f"the bundled model {name} is not installed; {INSTALLED[name].install}")
    return digest_of(folder / "model.bin") == PUBLISHED[name].sha256


def pin_of(model: str) -> Pin:
    """Return which bytes a model of the hub must have."""
    known = PUBLISHED.get(model)
    return Pin() if known is None else Pin(known.revision, known.sha256)


def _display_name(model: str) -> str:
    """Return the name as users see it, without the owner."""
    return model.rpartition("/")[2]

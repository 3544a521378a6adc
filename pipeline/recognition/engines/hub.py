"""Finds models in the cache of the Hugging Face hub on this machine, or downloads them. models.py calls it.

A download runs in a separate process (`python -m` this module), because only a process can be stopped: the hub's client
waits without limit on a network that drops packets.
"""

import hashlib
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeAlias

from huggingface_hub import constants

import pipeline
from pipeline.errors import ModelUnavailable

log = logging.getLogger(__name__)

ReportProgress: TypeAlias = Callable[[int, int], None]
"""Called from time to time with the number of bytes that have arrived and the number of all bytes."""

NEEDED = ("model.bin", "tokenizer.json")
"""Files without which no model can be loaded."""

_FILES = ["config.json", "preprocessor_config.json", "model.bin", "tokenizer.json", "vocabulary.*"]
REACH_S = 12.0  # the longest wait for the hub's first answer
_MEGABYTE = 1_000_000
BY_HAND = (
    "Copy the folder of a CTranslate2 Whisper model (model.bin, config.json, tokenizer.json, vocabulary.json) to this "
    "machine and give its path as the model, or connect the machine to the internet."
)


def cache_folder(cache_dir: Path | None) -> Path:
    """Return the folder of downloaded models: *cache_dir*, or by default the folder of Hugging Face's own tools."""
    return cache_dir or Path(constants.HF_HUB_CACHE)


def _repository_folder(repository: str, cache_dir: Path | None) -> Path:
    return cache_folder(cache_dir) / f"models--{repository.replace('/', '--')}"


@dataclass(frozen=True, slots=True)
class Pin:
    """Which bytes a model of the hub must have. None: the newest, whatever they are."""

    revision: str | None = None  # the commit
    sha256: str | None = None  # of model.bin


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

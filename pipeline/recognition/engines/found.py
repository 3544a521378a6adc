"""The settings of engines, and the models that an engine finds for them, whatever its kind."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipeline.recognition.engine import Engine
from pipeline.recognition.engines.whisper.windows import WindowSizes

AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Which recogniser is used, and how it uses the machine. "auto" and 0 leave the choice to the engine."""

    engine: str = AUTO  # one of ENGINES of load.py; auto: its first
    model: str = AUTO  # names or folders of Whisper models, see models.read_choice(); auto: see models.automatic()
    device: str = AUTO  # cpu or cuda
    compute_type: str = AUTO  # CTranslate2's; auto: int8 on a CPU, float16 on CUDA
    threads: int = 0  # of one call of the model
    gpu_batch: int = 0  # the most windows in one call on a GPU
    windows: Literal["auto", "full"] | WindowSizes = "auto"  # auto: what is known to suit the model, or full ones
    download_wait_s: float = 900.0
    cache_dir: Path | None = None  # for downloads and measurements; None: Hugging Face's own folder


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModel:
    """A model that can be loaded on this machine."""

    name: str  # as users see it
    load: Callable[[], Engine]  # raises ModelUnavailable
    languages: frozenset[str]
    longest_job: int  # the most samples of a file in one request
    device: str = "cpu"
    translates: bool = False
    bundled: bool = False  # it came with the installation
    size: int = 0  # about the memory that it takes, in bytes
    sizes: WindowSizes | None = None  # the windows that suit it, if they are known
    measure: Callable[[], WindowSizes] | None = None
    """Finds out in minutes which windows suit it, for the next time that it is loaded. None: they are known."""


@dataclass(frozen=True, slots=True)
class FoundModels:
    """The models that the settings choose."""

    models: tuple[FoundModel, ...]  # the default first; at least one
    routes: Mapping[str, str]  # the names of the models of single languages

    def without(self, name: str) -> "FoundModels":
        """Return all but the model called *name*."""
        models = tuple(model for model in self.models if model.name != name)
        return FoundModels(models, {code: model for code, model in self.routes.items() if model != name})

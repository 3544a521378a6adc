"""Finds the two models of voices: files in packages that `scripts/setup` installs and that are never imported."""

import io
import pickle
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.packaged import PackagedFile
from pipeline.speakers.options import INSTALL
from pipeline.weights import SEGMENTATION

Array = NDArray[np.float32]


ENCODER = PackagedFile(
    "Resemblyzer", "pretrained.pt", "39373b86598fa3da9fcddee6142382efe09777e8d37dc9c0561f41f0070f134e", INSTALL
)
"""A GE2E voice encoder, Apache-2.0: what a voice sounds like, as 256 numbers."""

ALL = (SEGMENTATION, ENCODER)


def installed() -> bool:
    """Return whether all weights are on this machine. Their bytes are not read."""
    return all(weights.installed for weights in ALL)


def damaged_files() -> list[str]:
    """Return the names of installed files that have other bytes than they should, which takes 0.1 s."""
    return [weights.file for weights in ALL if weights.damaged]


def read_tensors(data: bytes, member: str) -> dict[str, Array]:
    """Return the float tensors of *member* of a checkpoint in PyTorch's format before 1.6, by their names.

    A file of this format has four pickles, then for each storage its length and its bytes. Only tensors are unpickled.
    Any other object raises pickle.UnpicklingError.
    """
    file = io.BytesIO(data)
    for _ in range(3):  # magic number, version, byte order: those of every such file
        pickle.load(file)  # noqa: S301  the digest of these bytes was compared
    reader = _TensorUnpickler(file)
    checkpoint = reader.load()
    keys = pickle.load(file)  # noqa: S301  as above
    storages = {key: _read_storage(file) for key in keys}
    return {name: tensor.of(storages) for name, tensor in checkpoint[member].items()}


def _read_storage(file: io.BytesIO) -> Array:
    length = int.from_bytes(file.read(8), "little")
    return np.frombuffer(file.read(4 * length), np.float32)


@dataclass(frozen=True, slots=True)
class _Tensor:
    storage: tuple[str, int]  # its key, and where the tensor's view of it begins
    offset: int
    shape: tuple[int, ...]

    def of(self, storages: dict[str, Array]) -> Array:
        key, view = self.storage
        start = view + self.offset
        return storages[key][start : start + int(np.prod(self.shape, dtype=int))].reshape(self.shape)


class _TensorUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        match module, name:
            case "torch._utils", "_rebuild_tensor_v2":
                return _rebuild
            case "torch", "FloatStorage":
                return name
            case "collections", "OrderedDict":
                return OrderedDict
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a table of tensors")

    def persistent_load(self, pid: Sequence[Any]) -> tuple[str, int]:
        _, _, key, _, _, view = pid
        return key, 0 if view is None else view[1]


def _rebuild(storage: tuple[str, int], offset: int, shape: tuple[int, ...], *_: object) -> _Tensor:
    return _Tensor(storage, offset, shape)

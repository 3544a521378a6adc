"""Finds files of data in packages that `scripts/setup` installs and that are never imported."""

import hashlib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from pipeline.errors import ModelUnavailable


def find_packaged(package: str, name: str) -> Path | None:
    """Return where the file called *name* of an installed package is, or None. The package is not imported."""
    try:
        found = [file for file in files(package) or () if file.name == name]
    except PackageNotFoundError:
        return None
    paths = (Path(str(file.locate())) for file in found)
    return next((path for path in paths if path.is_file()), None)


def read_checked(path: Path, sha256: str, install: str) -> bytes:
    """Return the bytes of a file. Raises ModelUnavailable if it is missing or its SHA-256 is another one."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ModelUnavailable(f"{path} is missing: {install}") from None
    if hashlib.sha256(data).hexdigest() != sha256:
        raise ModelUnavailable(f"{path} is damaged or of another version: {install}")
    return data


@dataclass(frozen=True, slots=True)
class PackagedFile:
    """One file, the package that carries it, and what a message about its absence recommends."""

    package: str
    file: str
    sha256: str
    install: str

    @property
    def installed(self) -> bool:
        """Whether the file is on this machine. Its bytes are not read."""
        return find_packaged(self.package, self.file) is not None

    @property
    def damaged(self) -> bool:
        """Whether the file has other bytes than it should. Raises ModelUnavailable if it is missing."""
        return hashlib.sha256(self.find().read_bytes()).hexdigest() != self.sha256

    def find(self) -> Path:
        """Return where the file is. Raises ModelUnavailable if its package is not installed or has no such file."""
        path = find_packaged(self.package, self.file)
        if path is None:
            raise ModelUnavailable(f"{self.file} of the package {self.package} is missing: {self.install}")
        return path

    def read(self) -> bytes:
        """Return the bytes of the file. Raises ModelUnavailable if it is missing or is not the file that we know."""
        return read_checked(self.find(), self.sha256, self.install)

"""Finds files of data in packages that `scripts/setup` installs and that are never imported.

A file that is too large for one package lies in several as parts. It is joined once, into the folder of the
environment: `scripts/setup` runs weights.py for that, and loading a model does it where that was not done.
"""

import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
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
    """Return the bytes of a file. Raises ModelUnavailable if it is missing or its SHA-256 is wrong."""
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


@dataclass(frozen=True, slots=True)
class PackagedFolder:
    """A folder of files that one package carries whole, or several with the largest file in parts."""

    name: str
    packages: Sequence[str]  # the first one has all files but the one in parts
    files: Mapping[str, str]  # their names and SHA-256
    largest: str  # the one of *files* that is in parts if there are several packages: NAME.part1, NAME.part2, ...
    install: str  # what a message about a damaged file recommends

    def find(self) -> Path | None:
        """Return where the folder is, after joining it if need be; None if a package is not installed.

        Raises ModelUnavailable if the parts are not those of the file that we know, or it cannot be written.
        """
        if len(self.packages) > 1:
            return self._join_all()
        found = [find_packaged(self.packages[0], name) for name in self.files]
        return found[0].parent if found and found[0] is not None and all(found) else None

    def _join_all(self) -> Path | None:
        folder = Path(sys.prefix) / "share" / "scribewire" / self.name
        missing = [name for name in self.files if not (folder / name).is_file()]
        sources = {name: self._parts_of(name) for name in missing}
        if not all(all(parts) for parts in sources.values()):
            return None
        for name, parts in sources.items():
            try:
                folder.mkdir(parents=True, exist_ok=True)
                self._join([part for part in parts if part is not None], folder / name)
            except OSError as error:
                raise ModelUnavailable(f"{folder / name} cannot be written: {error}; {self.install}") from None
        return folder

    def _parts_of(self, name: str) -> list[Path | None]:
        if name != self.largest:
            return [find_packaged(self.packages[0], name)]
        return [find_packaged(package, f"{name}.part{number}") for number, package in enumerate(self.packages, 1)]

    def _join(self, parts: Sequence[Path], target: Path) -> None:
        """Write *parts* one after the other to a new file, which becomes *target* if its digest is right."""
        new, digest = target.with_name(f".{target.name}.{os.getpid()}"), hashlib.sha256()
        try:
            with new.open("wb") as file:
                for part in parts:
                    data = part.read_bytes()
                    digest.update(data)
                    file.write(data)
            if digest.hexdigest() != self.files[target.name]:
                raise ModelUnavailable(f"{target.name} of {self.name} in packages is damaged: {self.install}")
            new.rename(target)
        finally:
            new.unlink(missing_ok=True)

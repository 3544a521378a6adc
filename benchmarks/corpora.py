"""Recordings of people with their texts, from Debian's packages, for measuring in seven languages and more.

    scripts/corpora            # fetches all of them, 360 MB, into the cache: a folder for each language
    scripts/corpora es fr      # only these languages
    .venv/bin/python -m benchmarks.corpus ~/.cache/scribewire/corpora/es --model base --language es

Each recording is a FLAC file of 16 kHz with its text beside it in a file of the same name. A package is refused unless
its digest is the one that is written here. Needs apt-get and dpkg-deb.

| languages | who speaks | licence |
|---|---|---|
| en, es, fr, it, ru | one voice each: prompts of a telephone exchange, of five words or more | CC-BY-SA 3.0 |
| nl, cs | actors: the two fishes of the game Fish Fillets, whose lines follow their text roughly | GPL-2 |
| stamps-XX | volunteers: names of things, two seconds each, for finding the language of short speech | GPL-2 |
"""

import argparse
import gzip
import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
import soundfile

from pipeline.audio import RATE, Samples

PACKAGES = {
    "asterisk-core-sounds-en": "973e797d28e37fa6ca3c0a9d6fa717e77cf1268ae916bf09fd3503113cdffa50",
    "asterisk-core-sounds-en-g722": "38c5261820b406dcb0ecb37675720da2b0864850690690352ca52707eb623806",
    "asterisk-core-sounds-es": "9afdab7f559f036649fb406e625899306ca1004df8ebe39c30bfbd5912d66f74",
    "asterisk-core-sounds-es-g722": "e4e3b4281057d3b81b779298fd6be705f57411513955c518eed1bcaabbd615b8",
    "asterisk-core-sounds-fr": "04c82c78c570c43a7136cbc5e2488d0c470b775468dff9fbce4a131b18cf1056",
    "asterisk-core-sounds-fr-g722": "7add61d5e42279ecff1bbdf842a5a946ac3644fac9a0fe44384731aa7270c8e0",
    "asterisk-core-sounds-it": "3884d9457e12f21caa018c18f0d587df5d53ebea14b673d8453a134c5941ab3b",
    "asterisk-core-sounds-it-g722": "46b4cf7afc508a5fcfc051b7ea233251c0d195dd4ef83cc4b7facb4c6429b016",
    "asterisk-core-sounds-ru": "28a61616bb0cd3345a7ea532dec4df9f071e5d0fa9f8c1a563ea9669002f39ab",
    "asterisk-core-sounds-ru-g722": "673b4238a6b8269960f055d868c6a11083f7a0d00979167cb01554046b48ed9b",
    "fillets-ng-data": "25de89afd8b1adf7bcace8290248a6a22c89cd42300317e69000e162c032cf84",
    "fillets-ng-data-cs": "3ecef99b9456f1c80c9625c6f2418642b52d58e7167a46bad7a412db17991b14",
    "fillets-ng-data-nl": "afb4443fda9ab507dee578b75be857d121718a1cd6017a474f30e0eb13dc9d10",
    "tuxpaint-stamps-default": "6db6c1bfc870a47f1499d6203b083522eacb57c5f9c87d468f2e92eb6d9d5f34",
}
"""The SHA-256 of each package file."""

PROMPTS = ("en", "es", "fr", "it", "ru")
FISHES = ("nl", "cs")
STAMPS = ("ro", "es", "ru", "fr", "bg", "el", "ca")
FEWEST_WORDS = 5  # of a prompt: shorter ones are parts of sentences
SAID = re.compile(r'dialogId\("([^"]+)".*?\)\s*dialogStr\("((?:[^"\\]|\\.)*)"\)', re.DOTALL)
LONGEST_S = 30.0  # two recordings of the fishes state lengths of minutes


@dataclass(frozen=True, slots=True)
class Clip:
    """One recording of a corpus, and what is said in it."""

    language: str
    path: Path
    text: str

    @property
    def judges(self) -> bool:
        """Whether the clip is kept for judging; the other half is for choosing rules."""
        return is_for_judging(self.language, self.path.stem)


def is_for_judging(language: str, name: str) -> bool:
    """Return whether the digest of a clip's language and name is odd: half of all clips."""
    return hashlib.sha256(f"{language} {name}".encode()).digest()[0] % 2 == 1


def folder_of_corpora() -> Path:
    """Return the folder that scripts/corpora fills: SCRIBEWIRE_CORPORA, or one in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("SCRIBEWIRE_CORPORA") or cache / "scribewire" / "corpora")


def clips_of(corpus: str) -> list[Clip]:
    """Return the clips of a corpus that was fetched, by name. Raises SystemExit if there is none."""
    folder = folder_of_corpora() / corpus
    language = corpus.removeprefix("stamps-")
    paths = sorted(folder.glob("*.flac"))
    clips = [Clip(language, path, path.with_suffix(".txt").read_text().strip()) for path in paths]
    if not clips:
        raise SystemExit(f"no recordings in {folder}: run scripts/corpora {corpus}")
    return clips


def samples_of(clip: Clip) -> Samples:
    """Return the samples of a clip: float32, 16 kHz, mono."""
    samples: Samples = soundfile.read(clip.path, dtype="float32")[0]
    return samples


def main(arguments: Sequence[str] | None = None) -> None:
    names = (*PROMPTS, *FISHES, *(f"stamps-{language}" for language in STAMPS))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="*", metavar="CORPUS", help=f"{', '.join(names)} (default: all)")
    given = parser.parse_args(arguments)
    if unknown := set(given.corpora) - set(names):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    for corpus in given.corpora or names:
        folder = folder_of_corpora() / corpus
        if not folder.is_dir():
            fetch(corpus, folder)
        clips = clips_of(corpus)
        words = sum(len(clip.text.split()) for clip in clips)
        print(f"{corpus}: {len(clips)} recordings, {words} words, in {folder}")


def fetch(corpus: str, folder: Path) -> None:
    """Fill *folder* with the recordings of a corpus and their texts, wholly or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        for name, sound, text in _recordings(corpus, Path(scratch)):
            samples = read(sound)
            if 0 < len(samples) <= LONGEST_S * RATE:
                soundfile.write(made / f"{name}.flac", samples, RATE, subtype="PCM_16")
                (made / f"{name}.txt").write_text(text + "\n")
        made.rename(folder)


def _recordings(corpus: str, scratch: Path) -> Iterator[tuple[str, Path, str]]:
    """Yield the name, the file and the text of each recording."""
    if corpus in PROMPTS:
        return _prompts(corpus, scratch)
    if corpus in FISHES:
        return _fishes(corpus, scratch)
    return _stamps(corpus.removeprefix("stamps-"), scratch)


def _prompts(language: str, scratch: Path) -> Iterator[tuple[str, Path, str]]:
    texts = unpack(f"asterisk-core-sounds-{language}", scratch)
    sounds = unpack(f"asterisk-core-sounds-{language}-g722", scratch)
    [folder] = (sounds / "usr/share/asterisk/sounds").iterdir()
    listed = texts / f"usr/share/doc/asterisk-core-sounds-{language}/core-sounds-{language}.txt.gz"
    for line in gzip.decompress(listed.read_bytes()).decode().splitlines():
        name, colon, text = line.partition(":")
        sound = folder / f"{name}.g722"
        spoken = not line.startswith(";") and not re.search(r"[\[(<]", text)
        if colon and spoken and len(text.split()) >= FEWEST_WORDS and sound.is_file():
            yield name.replace("/", "-"), sound, text.strip()


def _fishes(language: str, scratch: Path) -> Iterator[tuple[str, Path, str]]:
    scripts = unpack("fillets-ng-data", scratch) / "usr/share/games/fillets-ng/script"
    sounds = unpack(f"fillets-ng-data-{language}", scratch) / "usr/share/games/fillets-ng/sound"
    for dialogs in sorted(scripts.glob(f"*/dialogs_{language}.lua")):
        level = dialogs.parent.name
        for name, text in SAID.findall(dialogs.read_text()):
            sound = sounds / level / language / f"{name}.ogg"
            if re.search(r"-[mv]-", name) and sound.is_file():  # the small fish and the big one
                yield f"{level}-{name}", sound, text.replace('\\"', '"')


def _stamps(language: str, scratch: Path) -> Iterator[tuple[str, Path, str]]:
    stamps = unpack("tuxpaint-stamps-default", scratch) / "usr/share/tuxpaint/stamps"
    for sound in sorted(stamps.rglob(f"*_desc_{language}.ogg")):
        listed = sound.with_name(sound.name.replace(f"_desc_{language}.ogg", ".txt"))
        if listed.is_file() and (text := re.search(rf"^{language}\.utf8=(.+)$", listed.read_text(), re.MULTILINE)):
            yield "-".join(listed.relative_to(stamps).with_suffix("").parts), sound, text[1].strip()


def unpack(package: str, scratch: Path) -> Path:
    """Download a package, check its digest, and return the folder of its files. Raises SystemExit if it is another."""
    folder = scratch / package
    folder.mkdir()
    subprocess.run(["apt-get", "download", "-qq", package], cwd=folder, check=True)
    [file] = folder.glob("*.deb")
    if (digest := hashlib.sha256(file.read_bytes()).hexdigest()) != PACKAGES[package]:
        raise SystemExit(f"{file.name} has the SHA-256 {digest} instead of {PACKAGES[package]}")
    subprocess.run(["dpkg-deb", "-x", file, folder], check=True)
    return folder


def read(sound: Path) -> Samples:
    """Return the samples of a file: float32, 16 kHz, mono."""
    raw = "g722" if sound.suffix == ".g722" else None
    resampler = av.AudioResampler(format="flt", layout="mono", rate=RATE)
    with av.open(str(sound), format=raw) as container:
        frames = [out for frame in container.decode(audio=0) for out in resampler.resample(frame)]
        frames += resampler.resample(None)
    return np.concatenate([frame.to_ndarray()[0] for frame in frames]) if frames else np.zeros(0, np.float32)


if __name__ == "__main__":
    main()

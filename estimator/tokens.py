"""How many tokens a provider will count for a prompt: a count in OpenAI's encodings, times its family's factor.

The rank files are on this disk; nothing is downloaded. Counting blocks but lets other threads run: a server calls it in
a thread. Factors and framing come from recorded requests: the usage that the provider reported, divided by the o200k
count (README, "Token counts"). *low* and *high* bound the recordings; they are not confidence limits.
"""

import base64
import gzip
import hashlib
import re
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import tiktoken

from estimator.request import EstimateError

O200K = "o200k_base"
CL100K = "cl100k_base"
EXACT = "exact_text"

HEURISTIC_LOW, HEURISTIC_HIGH = 60, 160  # counting characters gave this many percent of the truth
FOREIGN_LOW, FOREIGN_HIGH = 70, 160  # percent of the point, for text unlike the recordings
FOREIGN_SHARE = 0.2  # of non-ASCII characters; a text with more counts as foreign


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """point, low, high: percent of the count in *encoding*. framing: tokens a provider adds to every request."""

    method: str
    point: int
    low: int
    high: int
    framing: int
    encoding: str = O200K


FAMILIES = {
    "openai": Family(method=EXACT, point=100, low=100, high=103, framing=7),
    "openai-cl100k": Family(method=EXACT, point=100, low=100, high=103, framing=7, encoding=CL100K),
    "claude": Family(method="calibrated", point=112, low=100, high=127, framing=7),
    "claude-4.7": Family(method="calibrated", point=143, low=130, high=150, framing=6),
    "gemini": Family(method="calibrated", point=103, low=100, high=120, framing=2),
    "deepseek": Family(method="calibrated", point=103, low=100, high=106, framing=3),
    "mistral": Family(method="calibrated", point=105, low=100, high=140, framing=3),
    "grok": Family(method="weak", point=100, low=90, high=120, framing=684),
    "unmeasured": Family(method="unmeasured", point=105, low=90, high=140, framing=10),
}


@dataclass(frozen=True, slots=True)
class TextCount:
    """The tokens of a text in one encoding; *exact* is False if they were guessed from its characters."""

    tokens: int
    exact: bool
    non_ascii_share: float  # 0..1, of the characters


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTokens:
    """The tokens that a model will count for the text of the prompt alone."""

    low: int
    expected: int
    high: int
    method: str
    encoding: str | None
    widened: bool = False  # the text is unlike the recordings, so the bounds are wider

    @property
    def scenarios(self) -> tuple[int, int, int]:
        """The prompt tokens of the low, the expected and the high scenario.

        An exact count is the same in all three: its bound describes what providers add, not another prompt.
        """
        if self.method == EXACT:
            return self.expected, self.expected, self.expected
        return self.low, self.expected, self.high


def prompt_tokens(family: Family, count: TextCount) -> PromptTokens:
    """Return the tokens that *family* makes of a text with *count* tokens in family.encoding, rounded half up."""
    low, high, whole = family.low, family.high, 100
    widened = count.non_ascii_share > FOREIGN_SHARE and family.method != EXACT
    if widened:
        low, high = family.point * FOREIGN_LOW // 100, -(-family.point * FOREIGN_HIGH // 100)
    if not count.exact:
        low, high, whole = low * HEURISTIC_LOW, high * HEURISTIC_HIGH, 10_000
    return PromptTokens(
        low=count.tokens * low // whole,
        expected=(count.tokens * family.point + 50) // 100,
        high=-(-count.tokens * high // whole),
        method=family.method if count.exact else "heuristic",
        encoding=family.encoding if count.exact else None,
        widened=widened,
    )


# --- counting

LONGEST_PIECE = 100_000
"""The most characters encoded at once. tiktoken panics on 1,000,000 spaces, with a BaseException; 200,000 pass."""

_NEAR = 1000  # characters before a forced cut that are searched for a harmless one
_HARMLESS_CUT = re.compile(r"(?<=[A-Za-z0-9.,])(?= [A-Za-z0-9])", re.ASCII)
"""Both encodings always cut before such a space, so a cut here adds no token."""


class BadRankFile(EstimateError):
    """A rank file in the operator's folder is not the published one. Replace or remove it."""

    code = "bad_rank_file"


@dataclass(frozen=True, slots=True)
class _Ranks:
    """One published encoding."""

    sha256: str  # of the rank file, the value tiktoken pins too
    cached_as: str  # the file's name in tiktoken's own cache: the SHA-1 of its URL
    pattern: str  # how text is split before merging


_WORD_END = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_RANKS = {
    O200K: _Ranks(
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        "|".join(
            (
                r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + _WORD_END,
                r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + _WORD_END,
                r"\p{N}{1,3}",
                r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
                r"\s*[\r\n]+",
                r"\s+(?!\S)",
                r"\s+",
            )
        ),
    ),
    CL100K: _Ranks(
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
        r"|\s+(?!\S)|\s",
    ),
}


class TokenCounter:
    """Counts the tokens of texts in an encoding. It is thread-safe.

    Rank files are looked for once, in this order: *ranks_dir* (o200k_base.tiktoken, plain or .gz), *cache_dir*
    (tiktoken's own cache), the installed bpe-openai. Without any, counts are guesses and say so.
    """

    def __init__(self, *, ranks_dir: Path | None = None, cache_dir: Path | None = None, bundled: bool = True) -> None:
        self._ranks_dir = ranks_dir
        self._cache_dir = cache_dir
        self._bundled = bundled
        self._encodings: dict[str, tiktoken.Encoding | None] = {}
        self._loading = threading.Lock()  # so that two first callers do not both build 200,000 ranks

    def count(self, text: str, encoding: str = O200K) -> TextCount:
        """Return how many tokens *text* has. Special tokens in it count as plain text. Raises BadRankFile."""
        encoder = self._encoding(encoding)
        foreign = len(text) - _ascii_characters(text)
        share = foreign / len(text) if text else 0.0
        if encoder is None:
            return TextCount(guess_tokens(text), exact=False, non_ascii_share=share)
        # encode() would refuse a text that names a special token.
        tokens = sum(len(encoder.encode_ordinary(piece)) for piece in pieces(text))
        return TextCount(tokens, exact=True, non_ascii_share=share)

    def _encoding(self, name: str) -> tiktoken.Encoding | None:
        with self._loading:
            if name not in self._encodings:
                self._encodings[name] = self._load(name)
            return self._encodings[name]

    def _load(self, name: str) -> tiktoken.Encoding | None:
        for path in self._candidates(name):
            if not path.is_file():
                continue
            data = _read_ranks(path)
            if hashlib.sha256(data).hexdigest() == _RANKS[name].sha256:
                return _build_encoding(name, data)
            if path.parent == self._ranks_dir:
                raise BadRankFile(f"{path} is not the published {name} file (its SHA-256 differs)")
        return None

    def _candidates(self, name: str) -> Iterator[Path]:
        if self._ranks_dir is not None:
            yield self._ranks_dir / f"{name}.tiktoken"
            yield self._ranks_dir / f"{name}.tiktoken.gz"
        if self._cache_dir is not None:
            yield self._cache_dir / _RANKS[name].cached_as
        if self._bundled:
            # Only the data is needed: importing bpe_openai would load 74 MB of machine code.
            for package in metadata.distributions(name="bpe-openai"):
                yield Path(str(package.locate_file(f"bpe_openai/data/{name}.tiktoken.gz")))


def _read_ranks(path: Path) -> bytes:
    """Return the file's bytes, unpacked, or no bytes if it cannot be unpacked; the checksum then fails."""
    data = path.read_bytes()
    if path.suffix != ".gz":
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        return b""


def _build_encoding(name: str, data: bytes) -> tiktoken.Encoding:
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in data.splitlines())}
    return tiktoken.Encoding(name, pat_str=_RANKS[name].pattern, mergeable_ranks=ranks, special_tokens={})


def pieces(text: str, longest: int = LONGEST_PIECE) -> Iterator[str]:
    """Yield the text in pieces of at most *longest* characters, cut between two tokens if possible.

    If that is not possible, as in a million spaces, each cut adds a token or two to the count.
    """
    start = 0
    while len(text) - start > longest:
        end = start + longest
        cuts = [match.start() for match in _HARMLESS_CUT.finditer(text, max(start + 1, end - _NEAR), end)]
        end = cuts[-1] if cuts else end
        yield text[start:end]
        start = end
    yield text[start:]


def guess_tokens(text: str) -> int:
    """Guess the tokens of *text*: one for four ASCII characters or three bytes of anything else, rounded up."""
    plain = _ascii_characters(text)
    other = len(text.encode()) - plain
    return -(-(3 * plain + 4 * other) // 12)


def _ascii_characters(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("ascii", "ignore"))

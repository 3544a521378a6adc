"""How each family of tokenizers counts a prompt, relative to the encodings we can count exactly.

Factors and framing come from the usage that providers reported for recorded requests, divided by our own o200k count
(README, "Token counts"). *low* and *high* bound what was seen; they are not confidence limits.
"""

from dataclasses import dataclass

O200K = "o200k_base"
CL100K = "cl100k_base"

HEURISTIC_LOW, HEURISTIC_HIGH = 60, 160  # percent of the truth that counting characters was seen to give
FOREIGN_LOW, FOREIGN_HIGH = 70, 160  # percent of the point, for text the factors were not fitted on
FOREIGN_SHARE = 0.2  # of non-ASCII characters, above which a text counts as such


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """point, low, high: percent of the count in *encoding*. framing: tokens a provider adds to every request."""

    method: str
    point: int
    low: int
    high: int
    framing: int
    encoding: str = O200K

    @property
    def exact(self) -> bool:
        return self.method == "exact_text"


FAMILIES = {
    "openai": Family(method="exact_text", point=100, low=100, high=103, framing=7),
    "openai-cl100k": Family(method="exact_text", point=100, low=100, high=103, framing=7, encoding=CL100K),
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
    """Tokens of a text in one encoding; *exact* is False when they were only guessed from its characters."""

    tokens: int
    exact: bool
    non_ascii_share: float  # 0..1, of the characters


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTokens:
    """What a model will count for the prompt's text alone."""

    low: int
    expected: int
    high: int
    method: str
    encoding: str | None
    widened: bool = False  # mostly foreign to what the family's factors were fitted on

    @property
    def in_runs(self) -> tuple[int, int, int]:
        """The prompt that the low, expected and high scenario send.

        An exact count is the same in all three: its small bound is a remark on providers, not a different prompt.
        """
        if self.method == "exact_text":
            return self.expected, self.expected, self.expected
        return self.low, self.expected, self.high


def prompt_tokens(family: Family, count: TextCount) -> PromptTokens:
    """The family's view of a text whose tokens in family.encoding are *count*; the point is rounded half up."""
    low, high = family.low, family.high
    widened = count.non_ascii_share > FOREIGN_SHARE and not family.exact
    if widened:
        low, high = family.point * FOREIGN_LOW // 100, -(-family.point * FOREIGN_HIGH // 100)
    expected = (count.tokens * family.point + 50) // 100
    if count.exact:
        return PromptTokens(
            low=count.tokens * low // 100,
            expected=expected,
            high=-(-count.tokens * high // 100),
            method=family.method,
            encoding=family.encoding,
            widened=widened,
        )
    return PromptTokens(
        low=count.tokens * low * HEURISTIC_LOW // 10_000,
        expected=expected,
        high=-(-count.tokens * high * HEURISTIC_HIGH // 10_000),
        method="heuristic",
        encoding=None,
        widened=widened,
    )

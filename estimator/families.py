"""The number of tokens that each family of tokenizers makes of a prompt, relative to encodings that we can count.

Factors and framing come from recorded requests: the usage that the provider reported, divided by the o200k count
(README, "Token counts"). *low* and *high* bound the recordings; they are not confidence limits.
"""

from dataclasses import dataclass

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

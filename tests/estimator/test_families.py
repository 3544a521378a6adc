"""Tests of families.py: the bounds of token counts in each tokenizer family."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimator.tokens import FAMILIES, TextCount, prompt_tokens


@given(st.sampled_from(sorted(FAMILIES)), st.integers(0, 10**7), st.booleans(), st.floats(0, 1))
def test_bounds_hold_the_point_and_nothing_is_negative(name: str, tokens: int, exact: bool, share: float) -> None:  # noqa: FBT001  hypothesis fills it
    found = prompt_tokens(FAMILIES[name], TextCount(tokens, exact, share))
    assert 0 <= found.low <= found.expected <= found.high


@pytest.mark.parametrize(
    ("family", "bounds"),
    [
        ("openai", (2000, 2000, 2060)),
        ("claude", (2000, 2240, 2540)),
        ("claude-4.7", (2600, 2860, 3000)),
        ("gemini", (2000, 2060, 2400)),
        ("deepseek", (2000, 2060, 2120)),
        ("mistral", (2000, 2100, 2800)),
        ("grok", (1800, 2000, 2400)),
        ("unmeasured", (1800, 2100, 2800)),
    ],
)
def test_each_family_scales_the_count_by_what_was_recorded(family, bounds):
    found = prompt_tokens(FAMILIES[family], TextCount(2000, exact=True, non_ascii_share=0.2))
    assert (found.low, found.expected, found.high) == bounds


def test_the_point_is_rounded_half_up_the_bounds_outwards():
    found = prompt_tokens(FAMILIES["claude"], TextCount(5, exact=True, non_ascii_share=0.0))  # 5, 5.6, 6.35
    assert (found.low, found.expected, found.high) == (5, 6, 7)


def test_foreign_text_widens_every_family_but_openai():
    foreign = TextCount(1000, exact=True, non_ascii_share=0.21)
    for name, family in FAMILIES.items():
        found = prompt_tokens(family, foreign)
        assert found.widened is (family.method != "exact_text"), name
    claude = prompt_tokens(FAMILIES["claude"], foreign)
    assert (claude.low, claude.expected, claude.high) == (780, 1120, 1800)  # 0.7 and 1.6 times 1.12


def test_an_exact_count_is_the_same_in_every_scenario():
    found = prompt_tokens(FAMILIES["openai"], TextCount(2000, exact=True, non_ascii_share=0.0))
    assert found.scenarios == (2000, 2000, 2000)


def test_a_guess_says_heuristic_for_every_family_and_spans_its_bounds():
    for family in FAMILIES.values():
        found = prompt_tokens(family, TextCount(1000, exact=False, non_ascii_share=0.0))
        assert found.method == "heuristic"
        assert found.encoding is None
        assert found.scenarios == (found.low, found.expected, found.high)
    openai = prompt_tokens(FAMILIES["openai"], TextCount(1000, exact=False, non_ascii_share=0.0))
    assert (openai.low, openai.expected, openai.high) == (600, 1000, 1648)

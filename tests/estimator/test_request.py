"""Tests of request.py: every member of a request, its limits, and all faults at once."""

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from estimator.request import (
    CACHES,
    COMPLEXITIES,
    REASONINGS,
    EstimateRequest,
    Fault,
    InvalidRequest,
    PromptTooLong,
    parse_query,
    parse_request,
)


def fault_of(**members: object) -> Fault:
    """Return the only fault of a request that is valid except for *members*."""
    with pytest.raises(InvalidRequest) as caught:
        parse_request({"prompt": "hi", **members})
    (problem,) = caught.value.problems
    return problem


def test_every_member_arrives():
    body = {
        "prompt": "hi",
        "models": ["gpt-5-mini", "nope"],
        "complexity": "high",
        "agent_turns": 200,
        "cache": "off",
        "reasoning": "high",
        "output_tokens": 1,
        "system_tokens": 0,
        "priced_at": "2026-12-01T01:30:00.5+01:30",
        "audio_seconds": 2.5,
    }
    assert parse_request(body) == EstimateRequest(
        prompt="hi",
        models=("gpt-5-mini", "nope"),
        complexity="high",
        agent_turns=200,
        cache="off",
        reasoning="high",
        output_tokens=1,
        system_tokens=0,
        priced_at=datetime(2026, 12, 1, 0, 0, 0, 500_000, tzinfo=UTC),
        audio_seconds=Decimal("2.5"),
    )


@pytest.mark.parametrize("body", [None, [], "hi", 1, True])
def test_a_body_that_is_no_object_is_named_as_such(body):
    with pytest.raises(InvalidRequest, match="JSON object") as caught:
        parse_request(body)
    assert caught.value.problems[0].pointer == ""


def test_a_missing_prompt_is_told_from_one_of_another_type():
    with pytest.raises(InvalidRequest) as caught:
        parse_request({})
    assert caught.value.problems == (Fault("prompt", "/prompt", "missing", "prompt: is required"),)
    for value in (1, None, ["hi"], {}, True):
        with pytest.raises(InvalidRequest, match="must be a string") as caught:
            parse_request({"prompt": value})
        assert caught.value.problems[0].pointer == "/prompt"


@pytest.mark.parametrize(
    ("members", "pointer", "code", "allowed"),
    [
        ({"models": "gpt-5-mini"}, "/models", "wrong_type", "list"),
        ({"models": {}}, "/models", "wrong_type", "list"),
        ({"models": ["a", 1]}, "/models/1", "wrong_type", "strings"),
        ({"models": ["a", None]}, "/models/1", "wrong_type", "strings"),
        ({"models": [" "]}, "/models/0", "invalid_value", "not blank"),
        ({"models": ["a" * 201]}, "/models/0", "invalid_value", "200"),
        ({"models": ["\ud800"]}, "/models/0", "invalid_value", "characters"),
        ({"models": ["a"] * 101}, "/models", "too_many", "100"),
        ({"complexity": "extreme"}, "/complexity", "unknown_value", "low, medium, high"),
        ({"complexity": 1}, "/complexity", "wrong_type", "low, medium, high"),
        ({"agent_turns": 0}, "/agent_turns", "out_of_range", "1 to 200"),
        ({"agent_turns": 201}, "/agent_turns", "out_of_range", "1 to 200"),
        ({"agent_turns": 10**5000}, "/agent_turns", "out_of_range", "1 to 200"),
        ({"agent_turns": 2.0}, "/agent_turns", "wrong_type", "1 to 200"),
        ({"agent_turns": "2"}, "/agent_turns", "wrong_type", "1 to 200"),
        ({"agent_turns": True}, "/agent_turns", "wrong_type", "1 to 200"),
        ({"cache": "on"}, "/cache", "unknown_value", "auto, off"),
        ({"reasoning": ["auto"]}, "/reasoning", "wrong_type", "auto, off, high"),
        ({"output_tokens": 0}, "/output_tokens", "out_of_range", "1 to"),
        ({"system_tokens": -1}, "/system_tokens", "out_of_range", "0 to"),
        ({"priced_at": "2026-12-01"}, "/priced_at", "invalid_value", "2026-11-20T12:00:00Z"),
        ({"priced_at": "2026-12-01T00:00:00"}, "/priced_at", "invalid_value", "2026-11-20T12:00:00Z"),
        ({"priced_at": "2026-02-30T00:00:00Z"}, "/priced_at", "invalid_value", "2026-11-20T12:00:00Z"),
        ({"priced_at": "0001-01-01T00:00:00+10:00"}, "/priced_at", "invalid_value", "2026-11-20T12:00:00Z"),
        ({"priced_at": 1764547200}, "/priced_at", "invalid_value", "2026-11-20T12:00:00Z"),
        ({"audio_seconds": "2.5"}, "/audio_seconds", "wrong_type", "number of seconds"),
        ({"audio_seconds": True}, "/audio_seconds", "wrong_type", "number of seconds"),
        ({"audio_seconds": 0}, "/audio_seconds", "out_of_range", "above 0"),
        ({"audio_seconds": float("nan")}, "/audio_seconds", "out_of_range", "above 0"),
        ({"audio_seconds": 1e9}, "/audio_seconds", "out_of_range", "at most 31536000"),
        ({"prompt": "a\udcffb"}, "/prompt", "invalid_unicode", "surrogate"),
    ],
)
def test_each_fault_has_its_pointer_its_code_and_what_is_allowed(members, pointer, code, allowed):
    problem = fault_of(**members)
    assert (problem.pointer, problem.code) == (pointer, code)
    assert problem.param == next(iter(members))
    assert problem.message.startswith(f"{problem.param}: ")
    assert allowed in problem.message


def test_all_faults_are_named_at_once():
    with pytest.raises(InvalidRequest) as caught:
        parse_request({"models": 1, "agent_turns": 0, "complexity": "x"})
    assert [problem.param for problem in caught.value.problems] == ["prompt", "models", "complexity", "agent_turns"]


def test_no_message_holds_the_prompt():
    secret = "the secret recipe"
    with pytest.raises(InvalidRequest) as caught:
        parse_request({"prompt": secret, "agent_turns": 0})
    assert secret not in str(caught.value)
    with pytest.raises(PromptTooLong) as long:
        parse_request({"prompt": secret}, max_prompt_bytes=5)
    assert secret not in str(long.value)


def test_the_cap_counts_bytes_not_characters():
    assert parse_request({"prompt": "é" * 50}, max_prompt_bytes=100).prompt == "é" * 50
    with pytest.raises(PromptTooLong) as caught:
        parse_request({"prompt": "é" * 51}, max_prompt_bytes=100)
    assert (caught.value.limit, caught.value.actual, caught.value.code) == (100, 102, "prompt_too_long")


def test_unknown_members_are_kept_for_a_warning_but_not_endlessly():
    request = parse_request({"prompt": "", "agent_turn": 5, **{f"x{n}": n for n in range(99)}})
    assert request.unknown_members[0] == "agent_turn"
    assert len(request.unknown_members) == 8
    odd = parse_request({"prompt": "", "\ud800" + "y" * 100: 1}).unknown_members
    assert odd == ("?" + "y" * 63,)


def test_a_query_is_the_same_request_in_text():
    query = {"models": "gpt-5-mini, nope,", "agent_turns": "5", "output_tokens": "9", "audio_seconds": "1.5"}
    body = {"models": ["gpt-5-mini", "nope"], "agent_turns": 5, "output_tokens": 9, "audio_seconds": 1.5}
    assert parse_query(query, "hi") == parse_request({**body, "prompt": "hi"})
    assert parse_query({}, "hi") == EstimateRequest(prompt="hi")
    assert parse_query({"models": "", "prompt": "not this one"}, "hi") == EstimateRequest(prompt="hi")


@pytest.mark.parametrize("turns", ["", "x", "-1", "1.0", "9" * 30, "²"])
def test_a_query_with_a_number_that_is_none_is_refused(turns):
    with pytest.raises(InvalidRequest) as caught:
        parse_query({"agent_turns": turns}, "hi")
    assert caught.value.problems[0].param == "agent_turns"


texts = st.text(st.characters(), max_size=12)  # lone surrogates included
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
plausible = {
    "prompt": texts,
    "models": st.lists(texts, max_size=4),
    "complexity": st.sampled_from(COMPLEXITIES) | texts,
    "agent_turns": st.integers(-1, 202),
    "cache": st.sampled_from(CACHES),
    "reasoning": st.sampled_from(REASONINGS),
    "output_tokens": st.integers(),
    "system_tokens": st.integers(),
    "priced_at": st.datetimes().map(lambda moment: f"{moment.isoformat()}Z") | texts,
    "audio_seconds": st.floats() | st.integers() | texts,
}
bodies = json_values | st.fixed_dictionaries(
    {}, optional={name: values | json_values for name, values in plausible.items()}
)


def parse_or_error(body: object) -> EstimateRequest | InvalidRequest:
    try:
        return parse_request(body)
    except InvalidRequest as error:
        return error


@settings(max_examples=300)
@given(bodies)
@example({"prompt": "", "agent_turns": 10**6000})
@example({"prompt": "", "priced_at": "9999-12-31T23:59:59-23:59"})
def test_any_json_value_gives_a_request_or_the_named_error(body):
    found = parse_or_error(body)
    if isinstance(found, InvalidRequest):
        assert found.problems
        assert all(problem.pointer.startswith(f"/{problem.param}".rstrip("/")) for problem in found.problems)
        assert all(problem.code and problem.message.isprintable() for problem in found.problems)
        return
    assert isinstance(body, dict)
    assert found.prompt == body["prompt"]
    assert 1 <= found.agent_turns <= 200
    assert found.complexity in COMPLEXITIES
    assert found.priced_at is None or found.priced_at.tzinfo is UTC
    assert found.audio_seconds is None or found.audio_seconds > 0
    assert json.dumps(found.unknown_members, ensure_ascii=False).encode()

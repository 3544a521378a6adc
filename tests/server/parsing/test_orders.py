"""Tests of orders.py: every member of a transcription request, and all faults reported at once."""

from dataclasses import dataclass, replace

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.datastructures import QueryParams

from pipeline.documents.cues import SubtitleShape
from pipeline.recognition.engine import TASKS
from server.dialects.deepgram.parameters import parse_live
from server.dialects.openai.files import ResponseOptions
from server.http.problems import problem_of
from server.model.errors import Refused
from server.model.jobs import Received, StoredFile
from server.model.offers import Offer
from server.model.orders import LiveOptions, Order, without_defaults
from server.parsing.orders import ParsedRequest, parse_order

OFFER = Offer(engine="whisper", model="base", languages=frozenset({"en", "de"}))
URL = "https://x.test/a.mp3"
UPLOAD = StoredFile("blob", 1, None, None)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def parse(
    fields: dict[str, list[object]] | None = None, *, sandbox: bool = False, file: bool = False, **one: object
) -> ParsedRequest:
    given = {**(fields or {}), **{name: [value] for name, value in one.items()}}
    return parse_order(given, offer=OFFER, sandbox=sandbox, has_file=file)


def refusal_of(**options: object) -> Refused:
    with pytest.raises(Refused) as caught:
        parse(**options)  # type: ignore[arg-type]  # options of both kinds
    return caught.value


def status(refusal: Refused) -> int:
    """Return its HTTP status."""
    problem = problem_of(refusal)
    return problem.status


def faults(problem: Refused) -> dict[str, str]:
    return {error.param: error.code for error in problem.errors}


def test_a_plain_upload_asks_for_json_and_nothing_else():
    assert parse(file=True) == ParsedRequest(Order())


@pytest.mark.parametrize(
    ("given", "formats"),
    [
        (["json,srt"], ("json", "srt")),
        (["srt", "vtt,srt"], ("srt", "vtt")),
        ([" SRT , Txt "], ("srt", "txt")),
        ([["vtt", "json"]], ("vtt", "json")),
        (["txt,"], ("txt",)),
    ],
)
def test_formats_come_as_comma_list_repeated_part_or_array(given, formats):
    assert parse({"output_formats": given}, file=True).order.output_formats == formats


@pytest.mark.parametrize(
    ("value", "meant"), [("true", True), ("FALSE", False), ("1", True), ("0", False), (True, True)]
)
def test_a_switch_is_true_false_1_or_0(value, meant):
    assert parse(word_timestamps=value, file=True).order.word_timestamps is meant


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("output_formats", "doc", "unknown_value"),
        ("output_formats", 7, "invalid_type"),
        ("word_timestamps", "maybe", "invalid_type"),
        ("word_timestamps", 2, "invalid_type"),
        ("language", "xx", "unknown_value"),
        ("language", ["en"], "invalid_type"),
        ("model", "huge", "unknown_value"),
        ("task", "summarize", "unknown_value"),
        ("task", "translate", "unknown_value"),  # not with this model
        ("task", True, "invalid_type"),
        ("replace", "the:" + "x " * 13, "too_long"),  # each would be a word with its times, wherever "the" is said
        ("replace", "the " * 13 + ":x", "too_long"),
        ("wait", "abc", "invalid_type"),
        ("wait", "-1", "invalid_type"),
        ("wait", 1.5, "invalid_type"),
        ("wait", True, "invalid_type"),
        ("webhook_url", "https://x.test/" + "a" * 2048, "too_long"),
        ("webhook_events", "job.started", "unknown_value"),
        ("metadata", "[1]", "invalid_type"),
        ("metadata", "{", "invalid_json"),
        ("metadata", {"k": 1}, "invalid_type"),
        ("metadata", {"k": "v" * 513}, "too_long"),
        ("metadata", {str(n): "v" for n in range(17)}, "too_many"),
        ("schema", "service_v2", "unknown_value"),
        ("max_columns", "9", "out_of_range"),
        ("max_columns", 121, "out_of_range"),
        ("max_columns", "42.5", "out_of_range"),
        ("max_lines", 0, "out_of_range"),
        ("max_lines", "two", "out_of_range"),
        ("max_cue_s", "0.9", "out_of_range"),
        ("max_cue_s", "nan", "out_of_range"),
        ("max_cue_s", 21, "out_of_range"),
        ("columns_per_second", "4", "out_of_range"),
        ("columns_per_second", True, "out_of_range"),
    ],
)
def test_a_bad_member_is_named_with_what_is_wrong(name, value, code):
    problem = refusal_of(file=True, **{name: value})
    assert (problem.code, status(problem)) == ("invalid_parameter", 422)
    assert faults(problem)[name] == code
    assert name in problem.detail


@pytest.mark.parametrize(
    "given",
    [
        {"max_columns": "32", "max_lines": "3", "max_cue_s": "4.5", "columns_per_second": "20"},
        {"max_columns": 32, "max_lines": 3, "max_cue_s": 4.5, "columns_per_second": 20},
    ],
    ids=["form", "json"],
)
def test_subtitles_are_shaped_by_numbers_of_a_form_or_of_json(given):
    shape = SubtitleShape(max_columns=32, max_lines=3, max_cue_s=4.5, columns_per_second=20.0)
    parsed = parse(file=True, **given)
    assert (parsed.order.subtitles, parsed.warnings) == (shape, ())


def test_a_number_that_is_left_out_is_as_usual():
    assert parse(file=True, max_lines=1).order.subtitles == SubtitleShape(max_lines=1)


def test_everything_wrong_is_said_at_once():
    problem = refusal_of(file=True, word_timestamps="x", wait="y", output_formats="doc")
    assert faults(problem) == {
        "word_timestamps": "invalid_type",
        "wait": "invalid_type",
        "output_formats": "unknown_value",
    }


def test_an_unknown_format_is_told_what_is_allowed():
    assert "allowed: json, srt, vtt, txt" in refusal_of(file=True, output_formats="doc").detail


def test_a_member_given_twice_is_refused_unless_it_is_a_list():
    assert faults(refusal_of(fields={"language": ["en", "de"]}, file=True)) == {"language": "repeated"}


def test_exactly_one_source_is_wanted():
    assert refusal_of().code == "missing_input"
    assert refusal_of(url=URL, file=True).code == "ambiguous_input"
    assert refusal_of(url=URL, audio_url=URL).code == "ambiguous_input"
    assert parse(url=URL).url == parse(audio_url=URL).url == URL


def test_null_in_json_is_a_member_left_out():
    assert parse(url=URL, audio_url=None, webhook_url=None, webhook_events=None, metadata=None, wait=None) == parse(
        url=URL
    )
    assert refusal_of(url=None).code == "missing_input"


def test_webhook_events_need_an_address_and_default_to_both():
    assert faults(refusal_of(file=True, webhook_events="job.failed")) == {"webhook_events": "missing_companion"}
    hook = "https://x.test/hook"
    assert parse(file=True, webhook_url=hook).order.webhook_events == ("job.completed", "job.failed")
    assert parse(file=True, webhook_url=hook, webhook_events="job.failed").order.webhook_events == ("job.failed",)
    assert parse(file=True).order.webhook_events == ()


def test_metadata_is_an_object_in_json_and_its_text_in_a_form():
    meant = {"order": "17", "häh": "日本"}
    assert parse(file=True, metadata=meant).order.metadata == meant
    assert parse(file=True, metadata=orjson.dumps(meant).decode()).order.metadata == meant


def test_names_that_mean_nothing_are_warned_of():
    warnings = parse(file=True, output_format="srt").warnings
    assert warnings == ({"code": "unknown_parameter", "param": "output_format"},)


def test_what_depends_on_another_member_is_refused_without_it():
    assert faults(refusal_of(file=True, sounds_like="true")) == {"sounds_like": "missing_companion"}
    assert faults(refusal_of(file=True, phone_region="US")) == {"phone_region": "missing_companion"}
    unknown = refusal_of(file=True, phone_region="XX", redact="phone")
    assert faults(unknown) == {"phone_region": "unknown_value"}
    assert "US" in unknown.errors[0].message
    text = parse(file=True, sounds_like="true", keywords="Ada, Bob", phone_region="gb", redact="phone").order.text
    assert (text.sounds_like, text.phone_region) == (("Ada", "Bob"), "GB")
    deepgram = parse_live(QueryParams("sounds_like=true&keyterm=Ada&keywords=Bob:2"), OFFER).order.text
    assert deepgram.sounds_like == ("Ada", "Bob")
    with pytest.raises(Refused):
        parse_live(QueryParams("sounds_like=true"), OFFER)


def test_numerals_are_refused_at_openais_door_where_the_language_has_none():
    japanese = replace(OFFER, languages=frozenset({"ja"}))
    received = Received("job_1", {"model": ["whisper-1"], "language": ["ja"], "numerals": ["true"]}, file=UPLOAD)
    with pytest.raises(Refused) as refusal:
        ResponseOptions().read(received, japanese)
    assert faults(refusal.value) == {"numerals": "conflict"}


def test_scenarios_are_the_sandboxs_alone():
    assert parse(file=True, sandbox=True, sandbox_scenario="slow").order.scenario == "slow"
    assert faults(refusal_of(file=True, sandbox=True, sandbox_scenario="boom")) == {"sandbox_scenario": "unknown_value"}
    live = parse(file=True, sandbox_scenario="slow")
    assert (live.order.scenario, [warning["param"] for warning in live.warnings]) == (None, ["sandbox_scenario"])


@settings(max_examples=100)
@given(
    st.dictionaries(
        st.sampled_from(
            ["output_formats", "word_timestamps", "language", "model", "prompt", "webhook_url", "webhook_events",
             "metadata", "wait", "url", "audio_url", "sandbox_scenario", "schema", "other"]
        ),
        st.lists(ANY_JSON, min_size=1, max_size=2),
    ),
    st.booleans(),
)  # fmt: skip
def test_any_json_is_an_order_or_a_422(fields, sandbox):
    try:
        order = parse(fields, sandbox=sandbox, file=True).order
    except Refused as problem:
        refusal: Refused | None = problem
    else:
        refusal = None
        assert order.output_formats
        assert len(set(order.output_formats)) == len(order.output_formats)
        assert bool(order.webhook_events) is bool(order.webhook_url)
    assert refusal is None or status(refusal) == 422


def test_the_task_is_taken_from_forms_and_json_where_the_model_can_do_it():
    able = replace(OFFER, translates=True)
    for task in TASKS:
        asked = parse_order({"task": [task], "language": ["de"]}, offer=able, sandbox=False, has_file=True)
        assert (asked.order.task, asked.order.language, asked.warnings) == (task, "de", ())
    refusal = refusal_of(file=True, task="translate")
    assert [(fault.param, fault.message) for fault in refusal.errors] == [("task", OFFER.translation_refusal)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterOrder(Order):
    """As a later version may have it."""

    speakers: int | None = None


def test_what_an_order_says_is_the_same_to_a_version_that_knows_more_members():
    said = {"language": "de", "metadata": {"id": "7"}, "live": {"sample_rate": 8000}}
    members = {"language": "de", "metadata": {"id": "7"}, "live": LiveOptions(sample_rate=8000)}
    assert without_defaults(Order(**members)) == without_defaults(LaterOrder(**members)) == said
    assert without_defaults(LaterOrder(**members, speakers=2)) == {**said, "speakers": 2}
    assert without_defaults(Order(live=LiveOptions())) == {"live": {}}

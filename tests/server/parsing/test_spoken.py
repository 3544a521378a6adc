"""Tests of how every API understands the members about languages."""

from collections.abc import Mapping
from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import QueryParams

from server.dialects.deepgram.parameters import parse_file, parse_live
from server.dialects.openai.files import ResponseOptions
from server.dialects.openai.session_config import TranscriptionConfig
from server.model.errors import Refused
from server.model.jobs import Received
from server.model.offers import Offer
from server.model.orders import Order
from server.parsing.members import Members
from server.parsing.orders import parse_live_order, parse_order
from server.parsing.text import spoken_languages
from tests.server.parsing.test_orders import UPLOAD

OFFER = Offer(engine="whisper", model="base", languages=frozenset({"en", "de", "fr", "zh"}))
Fields = Mapping[str, list[object]]


def by_form(fields: Fields, offer: Offer) -> Order:
    return parse_order(fields, offer=offer, sandbox=False, has_file=True).order


def by_live(fields: Fields, offer: Offer) -> Order:
    return parse_live_order(fields, offer=offer).order


def by_openai(fields: Fields, offer: Offer) -> Order:
    given = Received("job_1", {"model": ["whisper-1"], **fields}, file=UPLOAD)
    return ResponseOptions().read(given, offer).order


def by_realtime(fields: Fields, offer: Offer) -> Order:
    asked = {name: values[0] if len(values) == 1 else values for name, values in fields.items()}
    return TranscriptionConfig().with_changes({"audio": {"input": {"transcription": asked}}}, offer).order()


def query(fields: Fields) -> QueryParams:
    return QueryParams([(name, str(value)) for name, values in fields.items() for value in values])


def by_deepgram(fields: Fields, offer: Offer) -> Order:
    return parse_file(query(fields), offer).order


def by_deepgram_live(fields: Fields, offer: Offer) -> Order:
    return parse_live(query(fields), offer).order


DOORS = [by_form, by_live, by_openai, by_realtime, by_deepgram, by_deepgram_live]
every_door = pytest.mark.parametrize("door", DOORS)


@every_door
@pytest.mark.parametrize("name", [None, "auto", "multi", "Multi", ""])
def test_no_name_auto_and_multi_are_one_thing(door, name):
    order = door({} if name is None else {"language": [name]}, OFFER)
    assert (order.language, order.languages) == (None, ())
    assert order == door({}, OFFER)


@every_door
@pytest.mark.parametrize(("name", "code"), [("de", "de"), ("en-US", "en"), ("German", "de"), ("fra", "fr")])
def test_a_name_is_the_language_of_all_that_is_said(door, name, code):
    order = door({"language": [name]}, OFFER)
    assert (order.language, order.languages) == (code, ())


@every_door
@pytest.mark.parametrize("given", [["fr-CA,en"], ["fr", "en"], ['["french", "en-GB"]']])
def test_a_list_with_commas_repeated_or_as_json_says_what_may_be_found(door, given):
    order = door({"languages": given}, OFFER)
    assert (order.language, order.languages) == (None, ("fr", "en"))
    alone = door({"languages": ["fr"]}, OFFER)
    assert (alone.language, alone.languages) == ("fr", ())


@every_door
@pytest.mark.parametrize("member", ["language", "languages"])
def test_a_language_that_nobody_hears_or_knows_is_refused_before_any_audio(door, member):
    for name, said in (("yue", "the model base knows de, en, fr, zh, not 'yue'"), ("germna", "nearest is german (de)")):
        with pytest.raises(Refused) as refusal:
            door({member: [name]}, OFFER)
        [fault] = refusal.value.errors
        assert (fault.param, fault.code) == (member, "unknown_value")
        assert said in fault.message


@every_door
def test_a_language_that_is_not_in_the_list_is_refused(door):
    with pytest.raises(Refused) as refusal:
        door({"language": ["de"], "languages": ["en", "fr"]}, OFFER)
    assert [(fault.param, fault.code) for fault in refusal.value.errors] == [("language", "conflict")]


@every_door
def test_a_chinese_name_settles_the_script_of_the_text(door):
    for name, script in (("zh-CN", "Hans"), ("zh-Hant-TW", "Hant"), ("zh", None)):
        order = door({"language": [name]}, OFFER)
        assert (order.language, order.text.script) == ("zh", script)
    assert door({"languages": ["en,zh-TW"]}, OFFER).text.script == "Hant"
    assert door({"languages": ["zh-CN,zh-TW"]}, OFFER).text.script is None


@every_door
def test_the_one_language_of_a_server_needs_no_search(door):
    english = replace(OFFER, languages=frozenset({"en"}))
    assert [door(fields, english).language for fields in ({}, {"language": ["multi"]})] == ["en", "en"]


@pytest.mark.parametrize("door", [by_deepgram, by_deepgram_live])
def test_deepgrams_names_for_the_list_are_understood(door):
    for fields in ({"detect_language": ["en", "de"]}, {"language_hint": ["en", "de"]}):
        assert door(fields, OFFER).languages == ("en", "de")
    assert door({"detect_language": ["true"]}, OFFER) == door({}, OFFER)
    with pytest.raises(Refused) as refusal:
        door({"language_hint": ["xx"]}, OFFER)
    assert [fault.param for fault in refusal.value.errors] == ["language_hint"]


def test_a_new_language_of_a_realtime_session_takes_the_place_of_its_list():
    config = TranscriptionConfig()
    for asked, spoken in (({"languages": ["en", "de"]}, (None, ("en", "de"))), ({"language": "fr"}, ("fr", ()))):
        config = config.with_changes({"audio": {"input": {"transcription": asked}}}, OFFER)
        assert (config.order().language, config.order().languages) == spoken


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.text(max_size=12)
    | st.sampled_from(["en", "de-AT", "auto", "zh-TW"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(st.lists(JSON, max_size=3), st.lists(JSON, max_size=3))
def test_anything_at_all_is_understood_or_a_422_that_names_the_member(one, several):
    for fields in ({"language": one, "languages": several}, {"languages": [orjson.dumps(several).decode()]}):
        members = Members(fields)
        spoken = spoken_languages(members, OFFER)
        assert {fault.param for fault in members.errors} <= {"language", "languages"}
        assert {spoken.language, *spoken.languages} <= {None, *OFFER.languages}
        assert spoken.language is None or not spoken.languages

"""Tests of how translations are ordered: at every endpoint, within the plan, and only what somebody here can make."""

import json

import pytest

from tests.server.receiving import receiver
from tests.server.serving import AppServer, serve, wav


@pytest.fixture(scope="module")
def english_server(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("english")) as started:
        yield started


@pytest.fixture(scope="module")
def any_server(tmp_path_factory):
    variables = {"TRANSLATION_URL": "http://127.0.0.1:9/v1", "TRANSLATION_MODEL": "m", "TRANSLATION_WAIT_S": "1"}
    with serve(tmp_path_factory.mktemp("any"), **variables) as started:
        yield started


def submit(server: AppServer, plan: str = "pro", **form: object):
    with server.new_client(plan) as client:
        headers = {"Prefer": "respond-async"}
        return client.post("/v1/transcribe", files={"file": ("a.wav", wav())}, data=form, headers=headers)


@pytest.mark.parametrize("given", ["de,fr", ["de", "fr"], '["de", "fr"]', ["German", "fr-CA"], "de, fr, de"])
def test_targets_are_listed_as_every_list_and_named_as_every_language(any_server, given):
    answer = submit(any_server, translate_to=given, output_formats="json,srt")
    assert answer.status_code == 202
    assert answer.json()["translate_to"] == ["de", "fr"]


@pytest.mark.parametrize(
    ("given", "code"), [("de", "not_offered"), ("klingon", "unknown_value"), ("en,de", "not_offered")]
)
def test_a_target_that_nobody_here_makes_is_refused_with_those_that_are(english_server, given, code):
    answer = submit(english_server, translate_to=given)
    assert answer.status_code == 422
    [fault] = answer.json()["errors"]
    assert (answer.json()["code"], fault["param"], fault["code"]) == ("invalid_parameter", "translate_to", code)
    assert code != "not_offered" or "into en" in fault["message"]


@pytest.mark.parametrize(("plan", "given", "most"), [("pro", "de,fr,es,it,ru,nl", 5), ("free", "de,fr,es", 2)])
def test_there_is_a_most_of_targets_and_each_plan_has_its_own(any_server, plan, given, most):
    answer = submit(any_server, plan, translate_to=given)
    assert answer.status_code == 422
    [fault] = answer.json()["errors"]
    assert (fault["param"], fault["code"]) == ("translate_to", "too_many")
    assert f"at most {most}" in fault["message"]


def test_addresses_and_live_sessions_take_json_lists(any_server):
    with any_server.new_client() as client:
        live = client.post("/v1/live", json={"translate_to": ["de", "ja"]})
        assert (live.status_code, live.json()["translate_to"]) == (201, ["de", "ja"])
        url = client.post(
            "/v1/transcribe", json={"url": "http://127.0.0.1:9/a.wav", "translate_to": ["de"]},
            headers={"Prefer": "respond-async"},
        )  # fmt: skip
        assert url.json()["translate_to"] == ["de"]
        assert client.post("/v1/live", json={"translate_to": "xx"}).status_code == 422


def test_openais_clients_send_targets_in_their_extra_body(any_server):
    with any_server.new_client() as client:
        form = {"model": "whisper-1", "translate_to[]": ["de", "fr"]}
        answer = client.post("/v1/audio/transcriptions", files={"file": ("a.wav", wav())}, data=form)
        assert answer.status_code == 200
        [job] = client.get("/v1/jobs").json()["data"]
        assert job["translate_to"] == ["de", "fr"]


def test_the_models_list_what_is_translated_into(english_server, any_server):
    for server, targets in ((english_server, ["en"]), (any_server, ["*"])):
        with server.new_client() as client:
            assert client.get("/v1/models").json()["translates_to"] == targets


def test_the_languages_of_libretranslate_are_learnt_while_the_server_runs(tmp_path):
    with receiver() as there:
        there.answer = lambda _: (200, {}, json.dumps([{"code": "en", "targets": ["de", "en"]}]).encode())
        variables = {"TRANSLATION_URL": there.url, "TRANSLATION_API": "libretranslate"}
        with serve(tmp_path, **variables) as server, server.new_client() as client:
            there.wait_for(1)
            server.call(lambda: None)
            assert client.get("/v1/models").json()["translates_to"] == ["de", "en"]
            assert client.post("/v1/live", json={"translate_to": ["fr"]}).status_code == 422


def test_usage_names_the_characters_that_were_translated(any_server):
    with any_server.new_client() as client:
        usage = {row["name"]: row for row in client.get("/v1/usage").json()["usage"]}
        assert usage["translated_characters"]["used"] == 0
        assert usage["translated_characters"]["limit"] is None

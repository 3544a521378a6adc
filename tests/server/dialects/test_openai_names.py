"""Tests of the names and members that OpenAI's clients send with a file, with the real openai client."""

from collections.abc import Iterator

import openai
import pytest

from pipeline.recognition.engine import TASKS, Hints
from server.dialects.openai.files import KNOWN
from server.dialects.openai.session_config import TranscriptionConfig
from server.model.offers import OPENAI_MODELS
from server.parsing.declared import KNOWN_SPEAKERS
from tests.server.running import Server, run_server
from tests.server.serving import AppServer, wav

DEFAULTS = {
    "LiveKit": "gpt-4o-mini-transcribe",
    "Pipecat": "gpt-transcribe",
    "OpenAI's guide": "gpt-4o-transcribe",
    "Open WebUI": "whisper-1",
}


@pytest.fixture(scope="module")
def client(live_server: AppServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key=live_server.key(), base_url=live_server.base + "/v1", max_retries=0) as client:
        yield client


def transcribe(client: openai.OpenAI, **members: object) -> str:
    """Transcribe a second of silence, which the scripted recogniser says its words for."""
    given = {"file": ("a.wav", wav()), "model": "whisper-1", **members}
    return client.audio.transcriptions.create(**given).text  # type: ignore[call-overload]  # members are its test


@pytest.mark.parametrize("name", DEFAULTS.values(), ids=DEFAULTS)
def test_the_default_model_of_a_known_client_is_the_model_that_is_here(client, name):
    assert transcribe(client, model=name) == "so my fellow"


def test_a_model_that_could_do_more_is_not_promised(client):
    with pytest.raises(openai.NotFoundError, match="the models are test"):
        transcribe(client, model="gpt-5-transcribe")


def test_each_listed_model_can_be_looked_up(client):
    listed = [model.id for model in client.models.list()]
    assert listed == [*OPENAI_MODELS, "test"]
    assert [client.models.retrieve(name).id for name in listed] == listed
    with pytest.raises(openai.NotFoundError) as refused:
        client.models.retrieve("gpt-9")
    assert refused.value.code == "model_not_found"


def test_an_operator_names_further_models(tmp_path):
    with run_server(tmp_path / "named", ENGINE="scripted", MODEL_ALIASES="house-model, large") as server:
        assert [is_accepted(server, name) for name in ("house-model", "large", "whisper-1", "other")] == [
            True,
            True,
            True,
            False,
        ]
    with run_server(tmp_path / "any", ENGINE="scripted", MODEL_ALIASES="*") as server:
        assert is_accepted(server, "other")
        assert "*" not in {row["id"] for row in server.client(server.new_key()).get("/v1/models").json()["data"]}


def is_accepted(server: Server, name: str) -> bool:
    form = {"model": name}
    answer = server.client(server.new_key()).post("/v1/audio/transcriptions", files={"file": wav()}, data=form)
    assert answer.status_code in (200, 404)
    return answer.status_code == 200


def test_one_language_in_a_list_is_the_language_and_several_are_detected(client, live_server):
    transcribe(client, languages=["de"])
    transcribe(client, languages=["en-US", "de"])
    transcribe(client, language="de-AT")
    asked = [(options.language, options.languages) for options in live_server.batch.options[-3:]]
    assert asked == [("de", set()), (None, {"en", "de"}), ("de", set())]
    with pytest.raises(openai.UnprocessableEntityError) as refused:
        transcribe(client, languages=["en", "ko"])
    assert refused.value.param == "languages"


def test_keywords_and_the_prompt_reach_the_recogniser(client, live_server):
    transcribe(client, keywords=["Siobhan", "metoprolol"], prompt="A call about a prescription.")
    told = live_server.batch.options[-1].hints
    assert told == Hints(("Siobhan", "metoprolol"), "A call about a prescription.")


def test_the_end_of_a_long_prompt_is_used_at_every_door_with_a_warning(client, live_server):
    long, end = "Lorem ipsum " * 500 + "the end.", "the end."
    raw = client.audio.transcriptions.with_raw_response.create(file=("a.wav", wav()), model="whisper-1", prompt=long)
    assert raw.headers["scribewire-warning"] == 'prompt_shortened;param="prompt"'
    hints = [live_server.batch.options[-1].hints.prompt]
    with live_server.new_client() as ours:
        file = ours.post("/v1/transcribe", files={"file": wav()}, data={"prompt": long})
        hints.append(live_server.batch.options[-1].hints.prompt)
        live = ours.post("/v1/live", json={"prompt": long})
        job = live_server.wait(live_server.storage.jobs.get(live.json()["job_id"]))
        hints.append(job.order.prompt)
        for answer in (file, live):
            (warning,) = [one for one in answer.json()["warnings"] if one["code"] == "prompt_shortened"]
            assert warning["param"] == "prompt"
            assert warning["message"].endswith(f" of {len(long)} characters are used")
            assert answer.headers["scribewire-warning"] == 'prompt_shortened;param="prompt"'
    config = TranscriptionConfig().with_changes(
        {"audio": {"input": {"transcription": {"prompt": long}}}}, live_server.service.parts.offers["production"]
    )
    hints.append(config.order().prompt)
    assert [warning["code"] for warning in config.warnings] == ["prompt_shortened"]
    assert {(hint[-len(end) :], 900 < len(hint) <= 1000, hint.split()[0] in ("Lorem", "ipsum")) for hint in hints} == {
        (end, True, True)
    }


def test_our_own_api_takes_keywords_as_a_list_or_as_text(live_server):
    with live_server.new_client() as client:
        form = {"keywords": "Siobhan, metoprolol ,Siobhan"}
        assert client.post("/v1/transcribe", files={"file": wav()}, data=form).status_code == 200
        assert live_server.batch.options[-1].hints.keywords == ("Siobhan", "metoprolol")
        live = client.post("/v1/live", json={"keywords": ["Dr. Nguyen, Kim", "Zürich"]})
        assert live.status_code == 201
        assert "warnings" not in live.json() or not live.json()["warnings"]
        job = live_server.wait(live_server.storage.jobs.get(live.json()["job_id"]))
        assert job.order.keywords == ("Dr. Nguyen, Kim", "Zürich")
        for wrong in (["x" * 1001], [str(number) for number in range(101)], [1], "y" * 1001, {"a": 1}):
            answer = client.post("/v1/live", json={"keywords": wrong})
            assert (answer.status_code, answer.json()["errors"][0]["param"]) == (422, "keywords")


@pytest.mark.parametrize(
    "form",
    [
        [("timestamp_granularities[]", "word"), ("timestamp_granularities[]", "segment")],
        [("timestamp_granularities", '["word"]')],
        [("timestamp_granularities", "['word', 'segment']")],
        [("timestamp_granularities", "[word]")],
        [("timestamp_granularities", "word,segment")],
        [("timestamp_granularities[0]", "segment"), ("timestamp_granularities[1]", "word")],
    ],
)
def test_a_list_may_be_written_as_the_clients_of_any_language_write_it(live_server, form):
    parts = [(name, (None, value)) for name, value in [*form, ("response_format", "VERBOSE_JSON"), ("stream", "0")]]
    with live_server.new_client() as client:
        answer = client.post("/v1/audio/transcriptions", files=[("file", ("a.wav", wav())), *parts])
    assert [word["word"] for word in answer.json()["words"]] == ["so", "my", "fellow"]


EMPTY = ("language", "prompt", "keywords", "model", "diarize", "max_speakers", "channels", "numerals")


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/v1/audio/transcriptions", ("response_format", "temperature", "stream", "timestamp_granularities[]")),
        ("/v1/transcribe", ("url", "output_formats", "wait", "metadata", "word_timestamps")),
    ],
)
def test_a_field_that_was_not_filled_in_is_left_out(live_server, path, names):
    with live_server.new_client() as client:
        answer = client.post(path, files={"file": wav()}, data=dict.fromkeys((*EMPTY, *names), ""))
        assert (answer.status_code, answer.json()["text"]) == (200, "so my fellow")
        assert "scribewire-warning" not in answer.headers
        hiding = client.post(path, files={"file": wav()}, data={"redact": ""})
        assert hiding.status_code == 422


@pytest.mark.parametrize("path", ["/v1/audio/transcriptions", "/v1/transcribe?wait=9"])
def test_a_member_in_the_query_is_said_to_have_no_effect(live_server, path):
    with live_server.new_client() as client:
        address = f"{path}{'&' if '?' in path else '?'}language=de&response_format=srt"
        answer = client.post(address, files={"file": wav()}, data={"language": "undefined"})
        assert (answer.status_code, answer.json()["text"]) == (200, "so my fellow")
        told = ", ".join(f'ignored_parameter;param="{name}"' for name in ("language", "response_format"))
        assert answer.headers["scribewire-warning"] == told


def test_log_probabilities_of_words_come_where_they_are_asked_for_and_join_to_the_text(client):
    asked = {"file": ("a.wav", wav()), "model": "whisper-1", "include": ["logprobs"]}
    whole = client.audio.transcriptions.create(**asked)
    shown = client.audio.transcriptions.create(file=asked["file"], model="whisper-1", response_format="verbose_json")
    assert "".join(one.token for one in whole.logprobs) == whole.text == shown.text
    assert [bytes(map(int, one.bytes)).decode() for one in whole.logprobs] == [one.token for one in whole.logprobs]
    assert all(-21 < one.logprob <= 0 for one in whole.logprobs)
    told = list(client.audio.transcriptions.create(**asked, stream=True))
    deltas = [one for one in told if one.type == "transcript.text.delta"]
    assert all("".join(token.token for token in one.logprobs) == one.delta for one in deltas)
    scores = [one.model_dump() for one in whole.logprobs]
    assert [token.model_dump() for one in deltas for token in one.logprobs] == scores
    assert [one.model_dump() for one in told[-1].logprobs] == scores
    plain = client.audio.transcriptions.create(file=asked["file"], model="whisper-1")
    assert plain.logprobs is None


def test_members_that_make_no_difference_here_are_taken(client):
    assert transcribe(client, chunking_strategy="auto", include=["logprobs"]) == "so my fellow"
    raw = client.audio.transcriptions.with_raw_response.create(
        file=("a.wav", wav()), model="whisper-1", include=["logprobs"], response_format="verbose_json"
    )
    assert raw.headers["scribewire-warning"] == 'unknown_parameter;param="include"'
    with pytest.raises(openai.UnprocessableEntityError, match="redact"):
        transcribe(client, extra_body={"redact": "pii"})
    vad = {"type": "server_vad", "threshold": 0.5}
    assert transcribe(client, chunking_strategy=vad, keywords=[]) == "so my fellow"


def test_the_form_of_a_file_is_described_with_every_member_that_is_read(live_server):
    form = live_server.description.document["components"]["schemas"]["OpenAITranscriptionForm"]
    described = {name.removesuffix("[]") for name in form["properties"]}
    assert described - {"chunking_strategy"} == KNOWN | KNOWN_SPEAKERS


@pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning")  # so OpenAI calls its translations
def test_a_translation_is_asked_of_the_recogniser_and_says_that_it_is_english(client, live_server):
    for language in ({}, {"extra_body": {"language": "de"}}):
        given = {"file": ("a.wav", wav()), "model": "whisper-1", "prompt": "A word in English.", **language}
        told = client.audio.translations.create(**given, response_format="verbose_json")  # type: ignore[call-overload]  # as in transcribe()
        assert (told.text, told.language, told.model_extra["task"]) == ("so my fellow", "english", "translate")
        asked = live_server.batch.options[-1]
        assert (asked.task, asked.hints.prompt) == ("translate", "A word in English.")
        assert asked.language == ("de" if language else None)
    transcribe(client)
    assert live_server.batch.options[-1].task == "transcribe"


def test_our_own_api_translates_files_and_tells_it_in_the_record(live_server):
    with live_server.new_client() as client:
        for task in TASKS:
            form = {"task": task, "language": "de"}
            record = client.post("/v1/transcribe", files={"file": wav()}, data=form).json()
            assert (record["status"], record["task"], live_server.batch.options[-1].task) == ("completed", task, task)
        repeated = {"headers": {"Idempotency-Key": "once"}, "files": {"file": wav()}}
        assert client.post("/v1/transcribe", data={"task": "translate"}, **repeated).status_code == 200
        assert client.post("/v1/transcribe", **repeated).json()["code"] == "idempotency_key_reused"
        live = client.post("/v1/live", json={"task": "translate"})
        assert (live.status_code, live.json()["task"]) == (201, "translate")

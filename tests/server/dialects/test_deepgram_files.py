"""Tests of files and addresses at /v1/listen, of their callbacks, and of grants, with the real deepgram-sdk."""

import hashlib
import io
from dataclasses import replace

import httpx
import numpy as np
import pytest
import soundfile
from deepgram import AsyncDeepgramClient, DeepgramClient
from deepgram.core.api_error import ApiError
from deepgram.listen.v1.types.listen_v1metadata import ListenV1Metadata
from deepgram.types import ListenV1AcceptedResponse
from standardwebhooks import Webhook

from pipeline.recognition.engine import Hints
from server.accounts.signed import CLIENT_SECRET, GRANT, make_credential, read_credential
from server.dialects.deepgram.answers import failure
from server.model.accounts import SigningKeys
from server.model.errors import Refused
from server.model.jobs import JobError
from tests.server.deepgram_client import environment
from tests.server.receiving import receiver
from tests.server.records.test_records import JOB
from tests.server.serving import wav
from tests.server.talking import silence


def test_files_and_addresses_are_sent_without_a_form(live_server):
    with httpx.Client(base_url=live_server.base, headers={"Authorization": f"Token {live_server.key()}"}) as client:
        for media_type in ("audio/wav", "application/octet-stream", "application/x-www-form-urlencoded"):
            answer = client.post(
                "/v1/listen?model=nova-3&keyterm=Siobhan&keywords=Kim:2&language=en",
                content=wav(),
                headers={"Content-Type": media_type},
            )
            assert answer.status_code == 200, answer.text
            [channel] = answer.json()["results"]["channels"]
            assert channel["alternatives"][0]["transcript"] == "so my fellow"
            assert answer.headers["dg-request-id"] == answer.json()["metadata"]["request_id"]
        assert live_server.batch.options[-1].hints == Hints(("Siobhan", "Kim"))
        for query, body, code in (
            ("", {"url": "ftp://example.org/a"}, "URL_NOT_ALLOWED"),
            ("&callback=https://10.0.0.1/done", {"url": "https://example.org/a"}, "URL_NOT_ALLOWED"),
            ("", {"uri": "x"}, "MISSING_INPUT"),
            ("", {}, "MISSING_INPUT"),
        ):
            refused = client.post(f"/v1/listen?model=nova-3{query}", json=body)
            assert (refused.status_code, refused.json()["err_code"]) == (400, code)
            assert refused.headers["dg-error"] == refused.json()["err_msg"]
        gone = client.post("/v1/listen", json={"url": f"{live_server.base}/nowhere"})
        assert (gone.status_code, gone.json()["err_code"]) == (400, "REMOTE_CONTENT_ERROR"), gone.text
        for noise in (b"", b"this is no audio" * 100, wav()[:40]):  # neither 415 nor 422, as Deepgram answers
            answer = client.post("/v1/listen", content=noise, headers={"Content-Type": "audio/wav"})
            assert answer.status_code == 400, answer.text
            assert answer.json()["err_code"] in ("UNSUPPORTED_AUDIO_FORMAT", "INVALID_AUDIO", "EMPTY_FILE")


def test_each_channel_of_a_file_is_heard_by_itself_if_that_is_asked_for(live_server):
    stereo = io.BytesIO()
    soundfile.write(stereo, np.zeros((16_000, 2), np.int16), 16_000, format="WAV")
    with live_server.client(live_server.key(environment="sandbox"), sandbox=True) as client:
        for query, count in (("multichannel=true&utterances=true", 2), ("multichannel=false&utterances=true", 1)):
            answer = client.post(f"/v1/listen?{query}", content=stereo.getvalue()).json()
            texts = [channel["alternatives"][0]["transcript"] for channel in answer["results"]["channels"]]
            assert (texts, answer["metadata"]["channels"]) == (["this is"] * count, count)
            assert [utterance["channel"] for utterance in answer["results"]["utterances"]] == list(range(count))


def test_options_that_make_no_difference_are_told_with_the_answer(live_server):
    with live_server.client(live_server.key()) as client:
        plain = client.post("/v1/listen?model=nova-3&diarize=false&tag=", content=wav())
        warned = client.post("/v1/listen?summarize=v2&%C3%A4=1", content=wav())
        record = client.get(f"/v1/jobs/{warned.headers['dg-request-id']}").json()
    assert "scribewire-warning" not in plain.headers
    told = warned.headers["scribewire-warning"]
    assert told == 'unknown_parameter;param="summarize", unknown_parameter;param="%C3%A4"'
    assert [warning["param"] for warning in record["warnings"]] == ["summarize", "ä"]


# --- callbacks and grants ---------------------------------------------------------------------------------------------


def test_the_deepgram_package_gets_a_number_and_its_callback_the_answer(live_server):
    key = live_server.key()
    with live_server.client(key) as client:
        secret = client.post("/v1/webhook-secret/rotate").json()["webhook_secret"]
    with receiver() as there, httpx.Client(timeout=30) as http:
        client = DeepgramClient(api_key=key, environment=environment(live_server), httpx_client=http)
        accepted = client.listen.v1.media.transcribe_file(
            request=wav(), model="nova-3", callback=f"{there.url}/done?call=7", utterances=True, punctuate=True
        )
        assert isinstance(accepted, ListenV1AcceptedResponse)
        [got] = there.wait_for(1)
    assert got.path == "/done?call=7"
    with live_server.client(key) as client:
        again = client.post("/v1/listen?utterances=true&punctuate=true", content=wav()).json()
    told = Webhook(secret).verify(got.body.decode(), got.headers)
    assert told["metadata"]["request_id"] == accepted.request_id
    assert told["metadata"]["sha256"] == hashlib.sha256(wav()).hexdigest() == again["metadata"]["sha256"]
    assert told["results"]["channels"] == again["results"]["channels"]
    assert [one["transcript"] for one in told["results"]["utterances"]] == [
        one["transcript"] for one in again["results"]["utterances"]
    ]


@pytest.mark.parametrize(
    ("query", "code", "says"),
    [
        ("callback=ftp://example.org/a", (400, "URL_NOT_ALLOWED"), "callback"),
        ("callback=https://example.org/a&callback_method=put", (400, "INVALID_PARAMETER"), "callback_method"),
        ("redact=", (400, "INVALID_PARAMETER"), "redact: must name at least one"),
    ],
)
def test_what_cannot_be_done_is_refused_at_once(live_server, query, code, says):
    with live_server.client(live_server.key()) as client:
        refused = client.post(f"/v1/listen?{query}", content=wav())
    assert (refused.status_code, refused.json()["err_code"]) == code
    assert says in refused.json()["err_msg"]


def test_the_callback_of_a_job_that_failed_is_told_why():
    job = replace(JOB, error=JobError(code="invalid_audio", message="broken", retryable=False))
    assert failure(job) == {"err_code": "INVALID_AUDIO", "err_msg": "broken", "request_id": job.id}
    assert failure(JOB)["err_code"] == "OUTPUT_NOT_FOUND"


async def test_a_grant_opens_listen_for_its_time_and_nothing_else(live_server):
    server = environment(live_server)
    async with httpx.AsyncClient(timeout=30) as http:
        key = live_server.key()
        granted = await AsyncDeepgramClient(api_key=key, environment=server, httpx_client=http).auth.v1.tokens.grant(
            ttl_seconds=20
        )
        assert granted.expires_in == 20
        browser = AsyncDeepgramClient(access_token=granted.access_token, environment=server, httpx_client=http)
        async with browser.listen.v1.connect(model="nova-3", encoding="linear16", sample_rate="16000") as connection:
            await connection.send_media(silence(1))
            await connection.send_close_stream()
            assert [message async for message in connection if isinstance(message, ListenV1Metadata)]
        answer = await browser.listen.v1.media.transcribe_file(request=wav(), model="nova-3")
        assert answer.results.channels[0].alternatives[0].transcript == "so my fellow"
        with pytest.raises(ApiError) as refused:
            await browser.auth.v1.tokens.grant()
        assert refused.value.status_code == 401
        elsewhere = await http.get(
            f"{live_server.base}/v1/jobs", headers={"Authorization": f"Bearer {granted.access_token}"}
        )
        assert elsewhere.status_code == 401


@pytest.mark.parametrize("ttl_seconds", [0, 3601, "30"])
def test_a_grant_lasts_an_hour_at_most(live_server, ttl_seconds):
    with live_server.client(live_server.key()) as client:
        refused = client.post("/v1/auth/grant", json={"ttl_seconds": ttl_seconds})
        assert (refused.status_code, refused.json()["err_code"]) == (400, "INVALID_PARAMETER")


def test_a_grant_that_has_expired_or_was_changed_is_refused():
    keys = SigningKeys(current="a", secrets={"a": b"s" * 32})
    grant = make_credential(keys, GRANT, key_hash=b"hash", expires_s=1000)
    assert read_credential(keys, GRANT, grant, now_s=999) == (b"hash", "")
    with pytest.raises(Refused, match="has expired"):
        read_credential(keys, GRANT, grant, now_s=1000)
    client_secret = make_credential(keys, CLIENT_SECRET, key_hash=b"hash", said="{}", expires_s=1000)
    for wrong in (grant[:-1], "gt_", client_secret.replace("ek_", "gt_")):
        with pytest.raises(Refused, match="This is no"):
            read_credential(keys, GRANT, wrong, now_s=0)

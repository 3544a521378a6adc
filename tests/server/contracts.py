"""What black-box tests of the contract share: a small file to send, and a check of refusals."""

import httpx

from tests.server.conforming import PROBLEM
from tests.server.running import CLIP, Server

SMALL = CLIP.parent / "en_00.flac"


def post(client: httpx.Client, **fields: str) -> httpx.Response:
    """Send the small file for transcription, with these form fields."""
    return client.post("/v1/transcribe", files={"file": ("a.flac", SMALL.read_bytes())}, data=fields)


def sandbox(server: Server) -> httpx.Client:
    """Return a client of the sandbox, with a new key."""
    return server.client(server.new_key("free", environment="sandbox"), sandbox=True)


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, object]:
    """Check that the answer is a refusal with this status and code, and return its body."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith(PROBLEM)
    body: dict[str, object] = answer.json()
    assert body["code"] == code
    assert body["status"] == status
    assert body["request_id"] == answer.headers["x-request-id"]
    return body

"""Runs the recipes whose blocks the tests of the guides cannot run by themselves: servers, signals, other machines."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.processes import free_port
from tests.server.receiving import ReceivedRequest, receiver
from tests.server.running import CLIP, ROOT, Server, run_server, until_over
from tests.waiting import until

BLOCKS = re.findall(
    r"^```py\n(.*?)^```", (ROOT / "server" / "recipes.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)


def block(mark: str) -> str:
    """Return the only Python block that has *mark*."""
    [found] = [one for one in BLOCKS if mark in one]
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with run_server(tmp_path_factory.mktemp("recipes") / "data") as started:
        yield started


def operator_key(server: Server) -> Path:
    """Return the file that has the key of the first start."""
    return server.data_dir / "operator-key"


def answers(port: int) -> bool:
    """Return whether somebody speaks HTTP at *port*."""
    with contextlib.suppress(httpx.TransportError):
        httpx.get(f"http://127.0.0.1:{port}")
        return True
    return False


@contextlib.contextmanager
def start_receiver(secret: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """Yield the address and the process of the receiver that the page prints."""
    port = free_port()
    program = block("BaseHTTPRequestHandler").replace("9000", str(port))
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "WEBHOOK_SECRET": secret},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        until(lambda: answers(port))
        yield f"http://127.0.0.1:{port}/hook", process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_every_python_recipe_compiles(number):
    compile(BLOCKS[number], "recipes.md", "exec")


def test_the_receiver_prints_what_a_real_delivery_says_and_refuses_a_forged_one(server):
    client = server.client(operator_key(server).read_text().strip())
    secret = client.post("/v1/webhook-secret/rotate").json()["webhook_secret"]
    with start_receiver(secret) as (address, process):
        headers = {"webhook-id": "msg_1", "webhook-timestamp": str(int(time.time())), "webhook-signature": "v1,AAAA"}
        assert httpx.post(address, content=b"{}", headers=headers).status_code == 401
        assert httpx.post(address, content=b"{}").status_code == 401
        job = client.post("/v1/transcribe", files={"file": CLIP.read_bytes()}, data={"webhook_url": address}).json()
        kind, job_id, text = process.stdout.readline().split(maxsplit=2)
        assert (kind, job_id) == ("job.completed", job["job_id"])
        assert text.strip() == until_over(client, job_id)["text"]
        until(lambda: client.get(f"/v1/jobs/{job_id}/deliveries").json()["data"][0]["state"] == "delivered")


def test_a_summary_is_asked_of_an_address_that_speaks_chat_completions(monkeypatch):
    answered = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "They met."}}
    program: dict[str, object] = {}
    exec(block("def summary"), program)
    summary = program["summary"]
    assert callable(summary)
    with receiver() as model:

        def answer(got: ReceivedRequest) -> tuple[int, dict[str, str], bytes]:
            if got.method == "GET":
                return 200, {}, b"a very long talk"
            body = json.dumps({**answered, "choices": [choice]}).encode()
            return 200, {"Content-Type": "application/json"}, body

        model.answer = answer
        monkeypatch.setenv("LLM_URL", f"{model.url}/v1")
        monkeypatch.setenv("LLM_MODEL", "any")
        assert summary({"data": {"text": "hello"}}) == "They met."
        assert summary({"data": {"formats": {"txt": f"{model.url}/outputs/txt"}}}) == "They met."
    asked = [json.loads(got.body)["messages"][0]["content"] for got in model.got if got.method == "POST"]
    assert [text.split("\n\n")[1] for text in asked] == ["hello", "a very long talk"]


needs_ffmpeg = pytest.mark.skipif(
    shutil.which("ffmpeg") is None or shutil.which("curl") is None, reason="scripts/ingest needs ffmpeg and curl"
)


@contextlib.contextmanager
def start_ingest(server: Server, key: Path, *inputs: str) -> Iterator["subprocess.Popen[str]"]:
    """Run scripts/ingest in a process group of its own, as MediaMTX does."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started the tests with SIGINT ignored
    process = subprocess.Popen(
        [ROOT / "scripts" / "ingest", *inputs],
        env={**os.environ, "KEY": str(key), "SERVER": server.base, "CHANNEL": "main-stage"},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def signal_group(process: "subprocess.Popen[str]") -> None:
    os.killpg(process.pid, signal.SIGINT)


def signal_script(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGINT)


@needs_ffmpeg
@pytest.mark.parametrize("leave", [signal_group, signal_script])
def test_a_publisher_that_leaves_ends_its_session_with_all_that_was_heard(server, leave):
    key = operator_key(server)
    client = server.client(key.read_text().strip())
    if client.get("/v1/channels").json()["data"] == []:
        assert client.post("/v1/channels", json={"name": "main-stage"}).status_code == 201
    with start_ingest(server, key, "-re", "-stream_loop", "-1", "-i", str(CLIP)) as process:
        job_id = json.loads(process.stdout.readline())["job_id"]
        path = f"/v1/jobs/{job_id}"
        until(lambda: client.get(path).json()["live"]["received_bytes"] >= 5 * 32_000, max_s=60)
        leave(process)
        arrived = json.loads(process.stdout.read())
    record = until_over(client, job_id)
    assert (record["status"], arrived["status"]) == ("completed", "completed")
    assert arrived["received_bytes"] >= 5 * 32_000
    assert len(str(record["text"]).split()) > 5


@needs_ffmpeg
def test_a_session_that_is_refused_is_said(server, tmp_path):
    key = tmp_path / "key"
    key.write_text("sw_live_wrong")
    with start_ingest(server, key, "-i", str(CLIP)) as process:
        _, told = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "invalid_key" in told

"""Log lines: what clients choose cannot write one of its own."""

import asyncio
import logging
import re
import sys
from functools import partial

import httpx
import orjson
import pytest

from server.http import middleware, sockets
from server.logs import _Json, _Lines, _Style, _Text, bytes_in_line, log, log_request, path_for_log
from server.model.errors import DiskFull, StorageAway, StorageError
from tests.server.running import Server
from tests.server.serving import until

LINE = re.compile(r"\d\d:\d\d:\d\d\.\d{3} \w+ +\S")


def lines_of(record: logging.LogRecord) -> list[str]:
    return _Text().format(record).splitlines()


def record(message: str, *values: object, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("scribewire", logging.INFO, "", 0, message, values, None)
    vars(made).update(fields)
    return made


def test_fields_and_messages_stay_on_their_line_and_send_nothing_to_a_terminal() -> None:
    forged = "/x\n12:00:00.000 info    ready\x1b[2J\r\u2028\u202e\x85é"
    for made in (record("request", path=forged), record("asked for %s", forged)):
        [line] = lines_of(made)
        assert r"/x\n12:00:00.000 info    ready\x1b[2J\r\u2028\u202e\x85é" in line


def test_a_value_cannot_pass_for_other_fields_of_its_line() -> None:
    [line] = lines_of(record("request", path='/x status=200 account="acct_1" \\', status=404))
    assert line.endswith(r'request path="/x status=200 account=\"acct_1\" \\" status=404')
    assert lines_of(record("request", path="/v1/jobs", said=""))[0].endswith('request path=/v1/jobs said=""')


def test_a_line_of_json_is_one_line_that_sends_nothing_to_a_terminal_and_keeps_its_values() -> None:
    forged = '/x\n\r\x1b[2J\x7f\x85\x9b2J\u2028\u202e\U000e0001é"\\'
    shown = _Json().format(record("request", path=forged))
    assert shown.isprintable()
    assert "é" in shown
    assert orjson.loads(shown)["path"] == forged


@pytest.mark.parametrize("char", ["a", '"', "\\", "\x1b", "\x85", "\U000e0001", "ü", "語"])
def test_a_path_takes_a_bounded_part_of_its_line(char: str) -> None:
    path = path_for_log("/" + char * 4000)
    shown = [len(style.format(record("", path=path)).encode()) for style in (_Text(), _Json())]
    empty = [len(style.format(record("", path="/")).encode()) - 1 for style in (_Text(), _Json())]
    text, json = (line - nothing for line, nothing in zip(shown, empty, strict=True))
    assert 188 <= text <= 200 + len('""')
    assert json <= bytes_in_line(path) <= 300
    assert path_for_log("/v1/jobs") == "/v1/jobs"
    assert bytes_in_line("/v1/jobs") == 8


@pytest.mark.parametrize("style", [_Text(), _Json()])
def test_the_lines_of_requests_and_sockets_are_as_long_as_they_are_counted(style: _Style) -> None:
    common = {"request_id": "", "path": "", "account": "acct_" + "0" * 26}
    request = common | {"method": "OPTIONS", "status": 404, "duration_ms": 100_000.1}
    assert len(style.line(0, "INFO", "request", request)) < middleware.LINE_BYTES
    assert len(style.line(0, "INFO", "websocket", common | {"code": 4404})) < sockets.LINE_BYTES


def test_the_text_of_an_exception_cannot_pass_for_a_line() -> None:
    made = record("unexpected error")
    error = ValueError("bad\n12:00:00.000 info    ready\x1b[2J")
    made.exc_info = (type(error), error, None)
    lines = lines_of(made)
    assert [line for line in lines if LINE.match(line)] == lines[:1]
    assert "\x1b" not in "".join(lines)
    assert lines[-1].strip() == r"12:00:00.000 info    ready\x1b[2J"


@pytest.mark.parametrize("error", [StorageAway("the database does not answer"), DiskFull("no room")])
def test_storage_that_is_away_or_full_is_one_line(error: Exception) -> None:
    made = record("sweep failed", job="job_1")
    try:
        raise error
    except StorageError:
        made.exc_info = sys.exc_info()
    [line] = lines_of(made)
    assert line.endswith(f"sweep failed: {error} job=job_1")
    assert orjson.loads(_Json().format(made))["error"] == str(error)


@pytest.mark.parametrize("style", [_Text(), _Json()])
def test_the_line_of_a_request_is_the_same_whether_others_listen_or_not(
    style: _Style,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("time.time", lambda: 1_795_362_917.25)
    monkeypatch.setattr("time.time_ns", lambda: 1_795_362_917_250_000_000)  # which logging reads since Python 3.13
    caplog.set_level(logging.INFO, log.name)
    fields = {"request_id": "req_1", "path": "/forged\n", "status": 200, "duration_ms": 0.4, "account": None}
    ours = _Lines(style)
    for listening in ([ours], [ours, logging.NullHandler()]):
        monkeypatch.setattr(logging.root, "handlers", listening)
        asyncio.run(answer(fields))
    alone, beside = capsys.readouterr().err.splitlines()
    assert alone == beside
    assert "account" not in alone
    assert alone.startswith("15:55:17.250 info    request request_id=req_1") or orjson.loads(alone)["status"] == 200


async def answer(*requests: dict[str, object]) -> None:
    for fields in requests:
        log_request(logging.INFO, fields)


def test_lines_of_requests_are_written_once_in_a_turn_of_the_loop_and_before_what_comes_after_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, writes = _Lines(_Text()), Writes()
    monkeypatch.setattr(ours, "stream", writes)
    monkeypatch.setattr(logging.root, "handlers", [ours])

    async def turn() -> None:
        await answer({"request_id": "req_1"}, {"request_id": "req_2"})
        assert not writes
        await asyncio.sleep(0)
        assert [lines(text) for text in writes] == [["request_id=req_1", "request_id=req_2"]]
        await answer({"request_id": "req_3"})
        logging.root.error("failed reason=disk")

    asyncio.run(turn())
    assert [last for text in writes for last in lines(text)][2:] == ["request_id=req_3", "reason=disk"]


class Writes(list[str]):
    """A stream that remembers what was written at once."""

    def write(self, text: str) -> None:
        self.append(text)

    def flush(self) -> None:
        pass


def lines(text: str) -> list[str]:
    """The last word of each line."""
    return [line.split()[-1] for line in text.splitlines()]


def test_a_path_with_a_line_break_writes_one_line_into_the_log_of_a_server(server: Server) -> None:
    httpx.get(server.base + "/forged%0a12:00:00.000%20info%20%20%20%20ready%1b[2J")
    until(lambda: [line for line in server.log if r'path="/forged\n12:00:00.000 info' in line])
    assert not [line for line in server.log if line.startswith("12:00:00.000") or "\x1b" in line]


def test_what_a_client_sends_wrong_writes_the_line_of_its_request_and_no_other(server: Server) -> None:
    headers = {"Content-Type": "multipart/form-data; boundary=x", "Authorization": f"Bearer {server.new_key()}"}
    for body in (b"junk", b"--y\r\n", b"--x\r\n\r\n", b"--x--\r\nepilogue"):
        before = len(server.log)
        answer = httpx.post(server.base + "/v1/transcribe", content=body, headers=headers)
        assert answer.is_client_error
        request_id = answer.headers["x-request-id"]
        until(partial(is_logged, server, request_id))
        assert [line for line in server.log[before:] if " info " not in line] == []


def is_logged(server: Server, request_id: str) -> bool:
    return any(request_id in line for line in server.log)

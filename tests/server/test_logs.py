"""Log lines: what clients choose cannot write one of its own."""

import logging
import re
import sys
from functools import partial

import httpx
import orjson
import pytest

from server.logs import _Json, _Text, path_for_log
from server.model.errors import DiskFull, StorageAway, StorageError
from tests.server.running import Server
from tests.waiting import until

LINE = re.compile(r"\d\d:\d\d:\d\d\.\d{3} \w+ +\S")


def lines_of(record: logging.LogRecord) -> list[str]:
    return _Text().format(record).splitlines()


def record(message: str, *values: object, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("scribewire", logging.INFO, "", 0, message, values, None)
    vars(made).update(fields)
    return made


def test_fields_and_messages_stay_on_their_line_and_send_nothing_to_a_terminal():
    forged = "/x\n12:00:00.000 info    ready\x1b[2J\r\u2028\u202e\x85é"
    for made in (record("request", path=forged), record("asked for %s", forged)):
        [line] = lines_of(made)
        assert r"/x\n12:00:00.000 info    ready\x1b[2J\r\u2028\u202e\x85é" in line


def test_a_value_cannot_pass_for_other_fields_of_its_line():
    [line] = lines_of(record("request", path='/x status=200 account="acct_1" \\', status=404))
    assert line.endswith(r'request path="/x status=200 account=\"acct_1\" \\" status=404')
    assert lines_of(record("request", path="/v1/jobs", said=""))[0].endswith('request path=/v1/jobs said=""')


def test_a_line_of_json_is_one_line_that_sends_nothing_to_a_terminal_and_keeps_its_values():
    forged = '/x\n\r\x1b[2J\x7f\x85\x9b2J\u2028\u202e\U000e0001é"\\'
    shown = _Json().format(record("request", path=forged))
    assert shown.isprintable()
    assert "é" in shown
    assert orjson.loads(shown)["path"] == forged


@pytest.mark.parametrize("char", ["a", '"', "\\", "\x1b", "\x85", "\U000e0001", "ü", "語"])
def test_a_path_takes_a_bounded_part_of_its_line(char):
    path = path_for_log("/" + char * 4000)
    shown = [len(style.format(record("", path=path)).encode()) for style in (_Text(), _Json())]
    empty = [len(style.format(record("", path="/")).encode()) - 1 for style in (_Text(), _Json())]
    text, json = (line - nothing for line, nothing in zip(shown, empty, strict=True))
    assert 188 <= text <= 200 + len('""')
    assert json <= 300
    assert path_for_log("/v1/jobs") == "/v1/jobs"


def test_the_text_of_an_exception_cannot_pass_for_a_line():
    made = record("unexpected error")
    error = ValueError("bad\n12:00:00.000 info    ready\x1b[2J")
    made.exc_info = (type(error), error, None)
    lines = lines_of(made)
    assert [line for line in lines if LINE.match(line)] == lines[:1]
    assert "\x1b" not in "".join(lines)
    assert lines[-1].strip() == r"12:00:00.000 info    ready\x1b[2J"


@pytest.mark.parametrize("error", [StorageAway("the database does not answer"), DiskFull("no room")])
def test_storage_that_is_away_or_full_is_one_line(error):
    made = record("sweep failed", job="job_1")
    try:
        raise error
    except StorageError:
        made.exc_info = sys.exc_info()
    [line] = lines_of(made)
    assert line.endswith(f"sweep failed: {error} job=job_1")
    assert orjson.loads(_Json().format(made))["error"] == str(error)


def test_a_path_with_a_line_break_writes_one_line_into_the_log_of_a_server(server):
    httpx.get(server.base + "/forged%0a12:00:00.000%20info%20%20%20%20ready%1b[2J")
    until(lambda: [line for line in server.log if r'path="/forged\n12:00:00.000 info' in line])
    assert not [line for line in server.log if line.startswith("12:00:00.000") or "\x1b" in line]


def test_what_a_client_sends_wrong_writes_the_line_of_its_request_and_no_other(server):
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

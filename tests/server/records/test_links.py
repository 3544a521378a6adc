"""Absolute URLs with the configured address, signed if they need no key."""

import socket
from dataclasses import replace
from ipaddress import ip_address
from urllib.parse import parse_qsl, urlsplit

import pytest

from server.accounts.signed import Scope, check_token
from server.clock import now_ms
from server.commands.connection import machine_address
from server.model.accounts import SigningKeys
from server.model.errors import Refused, WrongScope
from server.model.jobs import Job, State
from server.model.orders import Order, Source
from server.records import records
from server.records.records import Links
from tests.server.storing import NOON

KEYS = SigningKeys({"1": b"k" * 32}, "1")
LINKS = Links("https://speech.example/api", KEYS)
JOB = Job(
    id="job_01JD4W2M8Q7Z5K3N9V6B1XTRGH",
    account="acct_1",
    environment="production",
    state=State.COMPLETED,
    order=Order(),
    source=Source(type="upload"),
    created_at=NOON,
)


def query(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


def test_addresses_keep_the_prefix_of_the_public_address():
    assert LINKS.job(JOB) == f"https://speech.example/api/v1/jobs/{JOB.id}"
    assert LINKS.job_path(JOB) == f"/api/v1/jobs/{JOB.id}"
    assert LINKS.job(replace(JOB, environment="sandbox")) == f"https://speech.example/api/sandbox/v1/jobs/{JOB.id}"


def test_a_link_ends_when_its_time_is_over(monkeypatch):
    link = query(LINKS.output(JOB, "srt", ttl_s=60))
    later = now_ms() + 61_000
    monkeypatch.setattr(records, "now_ms", lambda: later)
    with pytest.raises(Refused, match="has expired"):
        LINKS.check_output(JOB.id, "srt", link)


def test_the_audio_socket_opens_with_a_token_for_writing_only():
    url = LINKS.ingest_socket(JOB, expires_s=now_ms() // 1000 + 60)
    assert url.startswith(f"wss://speech.example/api/v1/jobs/{JOB.id}/audio?token=st_")
    token = query(url)["token"]
    check_token(KEYS, token, job_id=JOB.id, scope=Scope.INGEST, now_s=now_ms() / 1000)
    with pytest.raises(WrongScope):
        check_token(KEYS, token, job_id=JOB.id, scope=Scope.EVENTS, now_s=now_ms() / 1000)


@pytest.mark.parametrize(
    ("base", "reachable"),
    [
        ("http://127.0.0.1:8000", False),
        ("http://localhost:8000", False),
        ("http://[::1]:8000", False),
        ("http://192.168.1.20:8000", True),
        ("https://speech.example.org", True),
    ],
)
def test_links_say_whether_other_machines_can_open_them(base, reachable):
    assert Links(base, KEYS).reachable is reachable


def test_a_server_on_all_networks_names_itself_by_an_address_of_this_machine():
    assert [machine_address(host) for host in ("localhost", "127.0.0.1", "192.168.1.20")] == [
        "127.0.0.1",
        "127.0.0.1",
        "192.168.1.20",
    ]
    found = machine_address("0.0.0.0")
    assert ip_address(found) != ip_address("0.0.0.0")
    with socket.socket() as mine:
        mine.bind((found, 0))  # only an address of this machine can be

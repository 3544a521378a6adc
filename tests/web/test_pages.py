"""Tests of how pages are served: security policy, caching, and when JSON is sent instead."""

import re
from pathlib import Path

import httpx
import orjson
import pytest
from websockets.sync.client import connect
from websockets.typing import Origin

from server.routes.service import WEB, policy, prefers_html
from tests.server.serving import serve

BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
PAGES = ("/", "/docs", "/live/job_00000000000000000000000000", "/edit/job_00000000000000000000000000")

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@pytest.mark.parametrize("path", PAGES)
def test_pages_allow_nothing_from_elsewhere_and_nothing_inline(server, path):
    answer = httpx.get(server.base + path, headers=BROWSER)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    rules = dict(rule.split(" ", 1) for rule in answer.headers["content-security-policy"].split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == "'self'"
    assert rules["frame-ancestors"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["connect-src"] == f"'self' {server.base.replace('http', 'ws')}"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert not re.search(r"\s(style|on\w+)=|<style|<script(?![^>]*\ssrc=)|https?://(?!example\.org)", answer.text)


@pytest.mark.parametrize("name", sorted(path.name for path in WEB.iterdir()))
def test_every_file_is_served_with_its_type_and_asked_for_again_by_etag(server, name):
    answer = httpx.get(f"{server.base}/web/{name}")
    assert answer.headers["content-type"] == TYPES[Path(name).suffix], "nosniff refuses a module of another"
    assert answer.content == (WEB / name).read_bytes()
    again = httpx.get(f"{server.base}/web/{name}", headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["cache-control"] == answer.headers["cache-control"] == "no-cache"
    head = httpx.head(f"{server.base}/web/{name}")
    assert (head.status_code, head.headers["etag"], head.content) == (200, answer.headers["etag"], b"")


@pytest.mark.parametrize("name", ["no.js", "%2e%2e%2fapp.py", "..%2f..%2fpyproject.toml", ""])
def test_only_files_of_the_pages_are_served(server, name):
    answer = httpx.get(f"{server.base}/web/{name}")
    assert answer.status_code == 404
    assert answer.json()["code"] == "not_found"


def test_the_front_door_knows_people_from_programs(server):
    assert "<!doctype html>" in httpx.get(server.base, headers=BROWSER).text
    for headers in ({}, {"Accept": "application/json"}, {"Accept": "*/*"}):
        assert httpx.get(server.base, headers=headers).json()["docs"] == f"{server.base}/docs"
    assert httpx.get(f"{server.base}/sandbox/", headers=BROWSER).json()["service"] == "scribewire"


def test_who_names_both_kinds_gets_what_he_names_first():
    assert prefers_html("text/html, application/json")
    assert not prefers_html("application/json, text/html")
    assert not prefers_html("")


def test_the_policy_lets_pages_speak_to_their_own_server_only():
    assert "connect-src 'self' wss://speech.example.org;" in policy("https://speech.example.org/prefix")


def test_our_own_pages_open_sockets_whatever_origins_are_named(tmp_path):
    with serve(tmp_path, CORS_ORIGINS="https://app.example") as server, server.new_client() as client:
        record = client.post("/v1/live", json={}).json()
        for origin, answer in ((server.base, "session.started"), ("https://evil.example", "error")):
            with connect(record["live"]["ingest_ws"], origin=Origin(origin)) as socket:
                assert orjson.loads(socket.recv(10))["type"] == answer

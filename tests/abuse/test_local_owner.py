"""Tests of the page's cookie for the owner of the machine: what it opens, and whom it is of no use to."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.processes import free_port
from tests.server.running import CLIP, Server, run_server

VISIT = {"Accept": "text/html", "Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}
ELSEWHERE = "https://evil.example"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield a server on loopback without any account beside the operator's."""
    with run_server(tmp_path_factory.mktemp("home"), ENGINE="scripted") as started:
        yield started


def visit(server: Server, **headers: str) -> str | None:
    """Open the page with these further headers, and return the cookie as it was set."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.get(server.base, headers={**VISIT, **named}).headers.get("set-cookie")


def cookie_of(server: Server) -> str:
    """Return the cookie that the page gets, as browsers send it."""
    cookie = visit(server)
    assert cookie is not None
    return cookie.partition(";")[0]


def usage(server: Server, headers: Mapping[str, str], path: str = "/v1/usage") -> int:
    return httpx.get(server.base + path, headers=headers).status_code


def test_the_owner_needs_no_key_and_is_not_rationed(home):
    cookie = visit(home)
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} < set(cookie.split("; "))
    headers = {"Cookie": cookie.partition(";")[0], "Origin": home.base}
    with httpx.Client(base_url=home.base, headers=headers, timeout=60) as page:
        assert page.get("/v1/usage").json()["owner"] is True
        with CLIP.open("rb") as audio:
            assert page.post("/v1/transcribe", files={"file": audio}).json()["status"] == "completed"
        assert page.post("/v1/estimate", json={"prompt": "Hello", "models": ["gpt-5-mini"]}).status_code == 200
        statuses = {page.get("/v1/jobs").status_code for _ in range(60)}
        assert statuses == {200}  # twice what a stranger may ask in a minute
        limits = page.get("/v1/usage").json()["limits"]
    assert {limits[name] for name in ("transcriptions_per_month", "estimates_per_day", "live_sessions")} == {None}


def test_the_cookie_works_for_reading_and_for_sockets_too(home):
    headers = {"Cookie": cookie_of(home)}
    same = {**headers, "Sec-Fetch-Site": "same-origin"}
    job = httpx.post(f"{home.base}/v1/live", headers={**headers, "Origin": home.base}, json={}).json()
    where = f"/v1/jobs/{job['job_id']}"
    assert usage(home, same, where) == 200
    socket = f"ws{home.base.removeprefix('http')}{where}/audio"
    with connect(socket, origin=home.base, additional_headers=headers) as writer:
        assert "session.started" in writer.recv()
        writer.send('{"type":"close"}')
    assert usage(home, same, f"{where}/events") == 200
    for origin in (None, ELSEWHERE, "http://localhost:9", "null"):
        with pytest.raises(InvalidStatus) as refused, connect(socket, origin=origin, additional_headers=headers):
            pass
        assert refused.value.response.status_code in (401, 403)


@pytest.mark.parametrize(
    "headers",
    [
        {},  # a program that has the cookie alone
        {"Origin": ELSEWHERE},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9"},  # another program's page on this machine, to which the browser sends it
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},  # an address that somebody was made to open
        {"Origin": "{base}", "Sec-Fetch-Site": "cross-site"},
        {"Origin": ELSEWHERE, "Sec-Fetch-Site": "same-origin"},
        {"Origin": "{base}", "X-Forwarded-For": "203.0.113.9"},
        {"Origin": "{base}", "X-Forwarded-For": ""},
        {"Origin": "{base}", "Forwarded": "for=203.0.113.9"},
        {"Origin": "{base}", "X-Real-IP": "203.0.113.9"},
        {"Origin": "http://rebound.example", "Host": "rebound.example"},  # a name that was made to lead here
        {"Origin": "http://127.0.0.1.evil.example", "Host": "127.0.0.1.evil.example"},
        {"Origin": "http://localhost@evil.example", "Host": "localhost@evil.example"},
        {"Origin": "http://192.0.2.1", "Host": "192.0.2.1"},
        {"Sec-Fetch-Site": "same-origin", "Host": "rebound.example"},
    ],
)
def test_requests_of_others_are_refused_even_with_the_cookie(home, headers):
    name, _, value = cookie_of(home).partition("=")
    port = headers.get("Host", home.base).rpartition(":")[2]
    cookie = f"{name}={value}; scribewire_owner_{port if port.isdecimal() else 80}={value}"
    sent = {given: text.format(base=home.base) for given, text in headers.items()}
    assert usage(home, {"Cookie": cookie, **sent}) == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "rebound.example"},
        {"X_Forwarded_For": "203.0.113.9"},
        {"Forwarded": "for=203.0.113.9"},
        {"Origin": ELSEWHERE, "Sec_Fetch_Mode": "no-cors"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"},  # an image of another page
        {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "cors"},
    ],
)
def test_only_a_visit_of_the_page_gets_the_cookie(home, headers):
    assert visit(home, **headers) is None
    assert visit(home, Host=f"localhost:{home.base.rpartition(':')[2]}") is not None


def test_two_host_headers_are_no_loopback_name(home):
    port = int(home.base.rpartition(":")[2])
    program = (
        "import socket,sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1])));"
        "s.sendall(b'GET / HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nHost: evil.example\\r\\nConnection: close\\r\\n\\r\\n');"
        "print(s.makefile('rb').read().decode())"
    )
    answer = subprocess.run([sys.executable, "-c", program, str(port)], capture_output=True, text=True, check=True)
    assert "set-cookie" not in answer.stdout.lower()


def test_the_cookie_cannot_be_made_up_or_changed(home):
    name, _, value = cookie_of(home).partition("=")
    for forged in ("", "ow_", value[:-1], value[:-1] + ("A" if value[-1] != "A" else "B"), value.swapcase(), "1"):
        assert usage(home, {"Cookie": f"{name}={forged}", "Origin": home.base}) == 401
    key = (home.data_dir / "operator-key").read_text().strip()
    assert usage(home, {"Cookie": f"{name}={key}", "Origin": home.base}) == 401
    assert usage(home, {"Authorization": f"Bearer {value}", "Origin": home.base}) == 401
    assert usage(home, {"Cookie": f"{name}={value}", "Origin": home.base}, "/sandbox/v1/usage") == 401


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root can run programs as another user")
def test_another_user_of_the_machine_is_a_stranger(home):
    cookie = cookie_of(home)
    ask = ["curl", "-s", "-i", "-H", "Sec-Fetch-Site: none", "-H", "Sec-Fetch-Mode: navigate", home.base]
    mine = subprocess.run(ask, capture_output=True, text=True, check=True)
    assert "scribewire_owner" in mine.stdout
    theirs = subprocess.run(ask, capture_output=True, text=True, check=True, user=65534, group=65534, extra_groups=[])
    assert "200 OK" in theirs.stdout
    assert "scribewire_owner" not in theirs.stdout
    stolen = ["curl", "-s", "-H", f"Cookie: {cookie}", "-H", f"Origin: {home.base}", f"{home.base}/v1/usage"]
    theirs = subprocess.run(
        stolen, capture_output=True, text=True, check=True, user=65534, group=65534, extra_groups=[]
    )
    assert "missing_credentials" in theirs.stdout


@pytest.mark.parametrize(
    "variables",
    [
        {"LOCAL_OWNER": "off"},
        {"TRUSTED_PROXIES": "10.0.0.0/8"},
        {"PUBLIC_BASE_URL": "https://speech.example.org"},
        {"HOST": "0.0.0.0", "ALLOW_INSECURE_HTTP": "1"},
    ],
    ids=lambda variables: next(iter(variables)),
)
def test_where_others_may_come_the_page_asks_for_a_key(tmp_path, variables):
    port = free_port()
    with run_server(tmp_path, ENGINE="scripted", PORT=str(port), **variables) as server:
        server.base = f"http://127.0.0.1:{port}"
        assert visit(server) is None
        assert usage(server, {"Sec-Fetch-Site": "same-origin"}) == 401


def test_the_first_account_ends_it_at_once_and_a_restart_does_not(tmp_path):
    port = str(free_port())
    with run_server(tmp_path, ENGINE="scripted", PORT=port) as server:
        headers = {"Cookie": cookie_of(server), "Origin": server.base}
    with run_server(tmp_path, ENGINE="scripted", PORT=port) as server:
        assert usage(server, headers) == 200
        assert (
            httpx.post(f"{server.base}/v1/keys", headers=headers, json={"name": "editor"}).json()["plan"]
            == "enterprise"
        )
        assert usage(server, headers) == 200  # a key of the operator's own account
        server.new_key("free")
        assert usage(server, headers) == 401
        assert visit(server) is None

"""Tests of the captions as an overlay: what is shown over a picture, and which addresses are refused."""

import asyncio
import re

import pytest

from tests.server.running import CLIP, Server
from tests.server.serving import serve
from tests.server.talking import Caller, open_talk, silence
from tests.web.browsing import Page


@pytest.fixture(scope="module")
def link(server: Server, key: str) -> str:
    """Return the path of the captions of a session that is over, which shows its last words."""
    with server.client(key) as client:
        job = client.post("/v1/live", json={"encoding": "container"}).json()["job_id"]
        client.post(f"/v1/jobs/{job}/audio?final=true", content=CLIP.read_bytes(), timeout=120).raise_for_status()
        token = client.post("/v1/tokens", json={"job_id": job}).json()["token"]
    return f"live/{job}?%s#token={token}"


def look(page: Page, name: str) -> str:
    return str(page.script("return getComputedStyle(document.querySelector('#captions .final'))[arguments[0]]", name))


def test_an_overlay_is_the_last_lines_on_nothing(page, link):
    page.open(link % "overlay=1&lines=2&size=40&color=ffee00&align=left&hide=0")
    page.until_text("#captions", r"\w+ \w+")
    assert page.script("return getComputedStyle(document.body).backgroundColor") == "rgba(0, 0, 0, 0)"
    assert not page.all("header")[0].is_displayed()
    assert (look(page, "fontSize"), look(page, "color"), look(page, "textAlign")) == (
        "40px",
        "rgb(255, 238, 0)",
        "left",
    )
    box = page.script("return document.querySelector('#captions').getBoundingClientRect().toJSON()")
    last = page.script("return [...document.querySelectorAll('.final')].at(-1).getBoundingClientRect().toJSON()")
    height = page.script("return innerHeight")
    assert box["height"] <= 2 * 1.3 * 40 + 1
    assert height - 40 < box["bottom"] <= height
    assert box["top"] <= last["top"]
    assert last["bottom"] <= box["bottom"] + 2


def test_an_overlay_is_empty_once_nobody_has_spoken_for_a_while(page, link):
    page.open(link % "overlay=1&hide=1")
    page.until_text("#captions", r"\w+ \w+")
    page.until(lambda: look(page, "visibility") == "hidden", "an empty overlay")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("overlay=1&lines=0", "lines must be a whole number from 1 to 10."),
        ("overlay=1&size=big", "size must be a whole number from 8 to 400."),
        ("overlay=1&color=%23fff", "color must be 3, 4, 6 or 8 hexadecimal digits without #."),
        ("overlay=1&align=top", "align must be left or center or right."),
        ("overlay=1&sise=40", "The overlay has no parameter sise."),
        ("overlay=yes", "overlay must be 1."),
    ],
)
def test_an_address_that_cannot_be_meant_says_what_is_wrong(page, link, query, said):
    page.open(link % query)
    page.until_text("#captions", re.escape(said))


def test_without_the_parameter_the_page_has_its_header(page, link):
    page.open(link % "")
    page.until_text("#captions", r"\w+ \w+")
    assert page.all("header")[0].is_displayed()


def test_a_channel_shows_each_session_that_names_it(page, server, key):
    with server.client(key) as client:
        channel = client.post("/v1/channels", json={"name": "main stage"}).json()
        page.open(channel["page_url"].removeprefix(f"{server.base}/").replace("#", "?overlay=1&hide=0#"))
        page.until(
            lambda: page.script("return document.querySelector('#standing').textContent").startswith("Wait"), "wait"
        )
        shown: list[str] = []
        for _ in range(2):
            begun = client.post("/v1/live", json={"encoding": "container", "channel": "main stage"})
            job = begun.json()["job_id"]
            client.post(f"/v1/jobs/{job}/audio?final=true", content=CLIP.read_bytes(), timeout=120).raise_for_status()
            said = client.get(f"/v1/jobs/{job}").json()["text"]
            shown.append(page.until_text("#captions", re.escape(said)))
            assert shown[-1].count(said) == 1
        client.delete(f"/v1/channels/{channel['channel_id']}")
        page.until_text("#captions", "no longer exists")
        page.console()  # the refusal is reported there as well


REMEMBER = """
window.shown = []
new MutationObserver(() => shown.push(document.querySelector("#captions").textContent))
    .observe(document.querySelector("#captions"), { childList: true, subtree: true, characterData: true })
"""


async def test_an_overlay_shows_the_text_as_it_was_ordered_and_nothing_else_before(tmp_path, browser):
    script = "My card is 4242 9371 8888 1117 thank you. The damn fox has twenty five dogs, okay?".split()  # noqa: SIM905
    with serve(tmp_path, script=script) as server:
        me = Caller(server, server.key())
        order = {"redact": ["pci"], "numerals": True, "profanity_filter": True, "replace": ["thank you:thanks"]}
        record = await me.start(**order, paragraphs=True, search=["fox"])
        token = await me.token(record["job_id"], "events")
        page = Page(browser, server.base)
        await asyncio.to_thread(page.open, f"live/{record['job_id']}?overlay=1&hide=0#token={token}")
        page.script(REMEMBER)
        async with open_talk(record["live"]["ingest_ws"]) as talk:
            await talk.send(silence(0.4 * len(script)), piece_s=0.2)
            await talk.close()
        await asyncio.to_thread(page.until_text, "#captions", r"25 dogs, okay\?")
        shown = page.script("return shown")
        assert shown[-1] == "My card is [CARD] thanks. The d*** fox has 25 dogs, okay?"
        assert len(shown) > 3
        assert not [text for text in shown if re.search(r"\d{3}|damn|thank you|twenty", text)]
        assert page.console() == []
        browser.get("about:blank")

"""Tests of the page for the owner of the machine, who needs no key and is not rationed."""

from urllib.parse import urlsplit

from tests.server.running import run_server
from tests.web.browsing import CLIP, Page


def test_at_home_the_page_asks_for_no_key_and_shows_no_allowance(browser, tmp_path):
    with run_server(tmp_path, ENGINE="scripted") as server:
        page = Page(browser, server.base)
        page.console()
        page.open("#account", key="sw_live_" + "x" * 40)  # of an earlier data folder
        page.until_text("#owner", "your own server.*needs no key")
        assert not page.all("#account-usage")[0].is_displayed()
        assert not page.all("#without-key")[0].is_displayed()
        assert page.script("return localStorage.length") == 0
        page.element("#channel-name").send_keys("stage\n")
        page.until_text("#channels", "stage")
        page.open("#speak")
        page.click("#speak-toggle")
        page.until_text("#speak-standing", "Listening")
        page.click("#speak-share")
        page.until_text("#speak-reach", "Only this computer can open this link.*--host 0.0.0.0")
        assert not page.all("#speak-qr")[0].is_displayed(), "no telephone can open this link"
        page.click("#speak-toggle")
        page.until_text("#speak-standing", "Done")
        page.open("#files")
        page.all("#file")[0].send_keys(str(CLIP))
        page.until_text("#job-view .transcript", r"\w+ \w+", max_s=40)
        page.click("#job-listen")
        assert not page.all("#key-dialog")[0].is_displayed()
        assert [message for message in page.console() if "401" not in message] == []
        browser.get("about:blank")


def test_a_server_for_the_network_says_where_its_owner_finds_a_key_and_shows_a_code_to_scan(browser, tmp_path):
    with run_server(tmp_path, ENGINE="scripted", HOST="0.0.0.0", ALLOW_INSECURE_HTTP="1") as server:
        page = Page(browser, f"http://127.0.0.1:{urlsplit(server.base).port}")
        page.open("#speak")
        page.click("#speak-toggle")
        page.until_text("#key-dialog", "your own server.*operator-key")
        page.element("#key-input").send_keys((tmp_path / "operator-key").read_text().strip() + "\n")
        page.until_text("#speak-standing", "Listening")
        page.click("#speak-share")
        page.until(
            lambda: str(page.element("#speak-qr path").get_attribute("d")).startswith("M4 4h1v1h-1z"), "the code"
        )
        assert not page.all("#speak-reach")[0].is_displayed()
        page.click("#speak-toggle")
        page.until_text("#speak-standing", "Done")
        browser.get("about:blank")

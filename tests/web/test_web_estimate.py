"""Tests of the estimator and account views, and of the message when an allowance is used up."""

import re

import httpx

from tests.web.browsing import Page


def ask(page: Page, prompt: str = "Summarise this meeting.", *, turns: int = 1) -> None:
    page.element("#prompt").send_keys(prompt)
    page.script("document.querySelector('#turns').value = arguments[0]", turns)
    page.click("#estimate-form button")


def test_every_model_has_a_bar_from_low_to_high_cheapest_first(page, key):
    page.open("#estimate", key=key)
    ask(page, turns=5)
    page.element("#estimate-rows li")
    rows = page.script("""
      return [...document.querySelectorAll("#estimate-rows li")].map((row) => {
        const place = (part) => row.querySelector(part).getBoundingClientRect();
        const [bar, cheaper] = [row.querySelector(".bar"), row.querySelector(".cheaper")];
        const [reach, dot] = [place(".range"), place(".point")];
        return [bar.ariaLabel, reach.left, dot.left + dot.width / 2, reach.right, cheaper.textContent];
      });
    """)
    assert len(rows) >= 24
    places = [place for _, _, place, _, _ in rows]
    assert places == sorted(places)
    assert all(low < expected < high for _, low, expected, high, _ in rows)
    assert all("low $" in said and "high $" in said for said, *_ in rows)
    assert all("less" in cheaper for *_, cheaper in rows)
    assert "5 turns" in page.text("#estimate-summary")
    assert page.all("#estimate-assumptions li")


def test_a_strange_model_is_told_its_nearest_name_and_rows_are_filtered(page, key):
    page.open("#estimate", key=key)
    page.click("#estimate-form button")
    page.until_text("#estimate-problem", "Paste a prompt first")
    page.element("#models").send_keys("gpt-5, gtp-5")
    ask(page)
    page.until_text("#estimate-rows", r"gtp-5 no model has this name; did you mean gpt-5")
    assert re.search(r"[\d,]+ tokens in, [\d,]+ out", page.text("#estimate-rows li"))
    page.element("#estimate-filter input").send_keys("GTP")
    page.until(lambda: [row.is_displayed() for row in page.all("#estimate-rows li")] == [False, True], "one row")


def test_without_a_key_there_are_some_estimates_and_then_a_clear_word(page):
    page.open("#estimate")
    for left in (2, 1, 0):
        ask(page)
        page.until_text("#estimate-left", f"{left} estimates? left today")
    ask(page)
    said = page.until_text("#estimate-problem", "All 3 estimates")
    assert "resets on" in said
    assert [message for message in page.console() if "429" not in message] == []


def test_the_account_shows_limits_and_use_and_forgets_its_key(page, server):
    made = httpx.post(f"{server.base}/v1/keys", json={}).json()["key"]
    page.open("#account", key=made)
    page.until_text("#usage", "0 of 5 used · resets [A-Z][a-z]{2} 1")
    page.until_text("#limits", "30 requests a minute")
    assert page.text("#key-shown") == f"{made[:12]}…{made[-4:]}"
    page.click("#key-forget")
    page.driver.switch_to.alert.accept()
    page.element("#key-get")
    assert page.script("return localStorage.length") == 0


def test_a_pasted_key_is_tried_before_it_is_kept(page, key):
    page.open("#account")
    page.click("#key-get")
    page.element("#key-input").send_keys(key[:-1] + ("a" if key[-1] != "a" else "b") + "\n")
    page.until_text("#key-dialog [role=alert]", "unknown, revoked or expired")
    page.until_text(
        "#key-holds", r"5 recordings a month, each up to 30 minutes long.*kept for 7 days.*When it is used up"
    )
    page.script("document.querySelector('#key-input').value = ''")
    page.element("#key-input").send_keys(key + "\n")
    page.until_text("#plan", "(?i)enterprise")
    assert [message for message in page.console() if "401" not in message] == []


def test_a_key_that_is_refused_is_said_to_be_and_no_plan_is_shown(page):
    page.open("#account", key="sw_live_" + "x" * 40)
    page.until_text("#account-problem", "unknown, revoked or expired. Choose another one under Account")
    assert not page.all("#account-usage")[0].is_displayed()
    assert [message for message in page.console() if "401" not in message] == []


def test_a_new_key_comes_with_its_webhook_secret_once(page):
    page.open("#account")
    page.click("#key-get")
    page.click("#key-create")
    page.until_text("#secret-shown", "^whsec_")
    page.driver.refresh()
    page.until_text("#plan", "(?i)free")
    assert not page.all("#secret")[0].is_displayed()

"""Tests of every view: usable by keyboard, named for screen readers, enough contrast, and fit for a phone."""

import functools

import pytest

from tests.web.browsing import CLIP, NARROW, SAID, Page

VIEWS = ("#speak", "#files", "#job", "#estimate", "#account", "docs", "live/job_00000000000000000000000000")


def open_view(page: Page, view: str, key: str) -> None:
    """Open the view with some content."""
    page.open("#files" if view == "#job" else view, key=key)
    match view:
        case "#job":
            page.all("#file")[0].send_keys(str(CLIP))
            page.until_text("#job-view .transcript", SAID, max_s=40)
        case "#estimate":
            page.element("#prompt").send_keys("Hello")
            page.click("#estimate-form button")
            page.element("#estimate-rows li")
        case "#account":
            page.element("#usage dd")
        case "docs":
            page.element("article")
        case _:
            page.element("h1")


@pytest.mark.parametrize("view", VIEWS)
def test_every_control_has_a_name_and_every_text_enough_contrast(page, key, view):
    page.look(still=True)
    open_view(page, view, key)
    assert page.nameless() == []
    assert page.pale() == []
    paper = page.script("return getComputedStyle(document.documentElement).backgroundColor")
    page.look(dark=True, still=True)
    assert page.script("return getComputedStyle(document.documentElement).backgroundColor") != paper
    assert page.pale() == []
    regions = page.regions()
    assert len(set(regions)) == len(regions)
    page.look(size=NARROW, dark=True, still=True)
    assert page.sideways() <= 0


def test_in_forced_colours_the_record_button_keeps_its_sign(page):
    page.look(forced=True, still=True)
    page.open("#speak")
    sign, button = page.script("""
      const style = (one) => getComputedStyle(document.querySelector(one));
      return [style("#speak-toggle .sign").borderTopColor, style("#speak-toggle").backgroundColor];
    """)
    assert sign != button


@pytest.mark.parametrize("view", ["#speak", "#files"])
def test_choices_show_their_whole_text(page, key, view):
    page.open(view, key=key)
    cut = page.script("""
      for (const details of document.querySelectorAll("details")) details.open = true;
      const context = document.createElement("canvas").getContext("2d");
      const all = [...document.querySelectorAll(`${arguments[0]}-view select`)];
      const shown = all.filter((one) => one.checkVisibility());
      return shown.filter((one) => {
        context.font = getComputedStyle(one).font;
        const widest = Math.max(...[...one.options].map(({ text }) => context.measureText(text).width));
        return widest > one.clientWidth - 24;
      }).map((one) => one.name || one.id);
    """, view)  # fmt: skip
    assert cut == []


def test_a_message_covers_no_heading_on_a_phone(page, key):
    page.look(size=NARROW)
    page.open("#speak", key=key)
    toast, top = page.script("""
      document.querySelector("#toast").textContent = "The session goes on in a new job. Its live link is new.";
      return ["#toast", ".top"].map((one) => document.querySelector(one).getBoundingClientRect().toJSON());
    """)
    assert toast["top"] > top["bottom"]
    assert toast["left"] >= 0


def test_the_contrast_check_sees_pale_text(page):
    page.open("#speak")
    page.script("document.querySelector('.lead').style.color = '#999'")
    assert any("lead" in found for found in page.pale())


def test_the_key_dialog_is_named_and_readable(page):
    page.look(still=True)
    page.open("#speak")
    page.click("#speak-toggle")
    page.element("#key-dialog")
    assert page.nameless() == []
    assert page.pale() == []


def has_title(page: Page, name: str) -> bool:
    return bool(page.driver.title == f"{name} · Scribewire")


def test_each_view_has_an_address_a_title_and_the_keyboard(page):
    page.open()
    for name in ("Files", "Estimate", "Account", "Speak"):
        page.all(f"nav a[href='#{name.lower()}']")[0].click()
        page.until(functools.partial(has_title, page, name), name)
        assert page.script("return document.activeElement.tagName") == "H1"
        assert page.text("nav [aria-current]") == name
    page.driver.back()
    page.until(lambda: page.driver.title.startswith("Account"), "the view before")


def test_scripts_and_styles_that_others_bring_in_do_not_run(page):
    page.open("#speak")
    page.script("""
      const script = document.createElement("script");
      script.textContent = "window.ran = true";
      document.body.append(script);
      const image = document.createElement("img");
      image.src = "https://example.org/x.png";
      document.body.append(image);
    """)
    assert page.script("return window.ran ?? false") is False
    said = page.until(page.console, "complaints of the policy")
    assert all("Content Security Policy" in message for message in said)
    page.hosts()

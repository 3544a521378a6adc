"""Tests of /docs: it shows all of /openapi.json and can be searched."""

import httpx


def test_every_operation_webhook_and_schema_stands_there(page, server):
    described = httpx.get(f"{server.base}/openapi.json").json()
    page.open("docs")
    page.element("article")
    ids = set(page.script("return [...document.querySelectorAll('article')].map((one) => one.id)"))
    operations = {one["operationId"] for path in described["paths"].values() for one in path.values()}
    assert operations <= ids
    assert {f"webhook-{event}" for event in described["webhooks"]} <= ids
    assert {f"schema-{name}" for name in described["components"]["schemas"]} <= ids
    assert len(page.all("#contents li")) == len(operations)
    text = page.script("return document.querySelector('#transcribe').textContent")
    for part in ("Idempotency-Key", "multipart/form-data", "audio_too_long", "Preference-Applied"):
        assert part in text
    assert "[object" not in page.script("return document.body.textContent")


def test_links_between_operations_and_schemas_lead_somewhere(page):
    page.open("docs")
    page.element("article")
    broken = page.script("""
      const ids = [...document.querySelectorAll("a[href^='#']")].map((link) => link.hash.slice(1));
      return ids.filter((id) => !document.getElementById(id));
    """)
    assert broken == []


def test_search_leaves_what_has_every_word(page):
    page.open("docs")
    page.element("article")
    page.element("#search").send_keys("ingest_busy audio")
    page.until_text("#found", r"^\d+ found")
    shown = [one.get_attribute("id") for one in page.all("article") if one.is_displayed()]
    assert "sendAudio" in shown
    assert "createKey" not in shown
    page.element("#search").clear()
    page.element("#search").send_keys("nothing has this")
    page.until_text("#found", "^0 found")

"""Fixtures for the tests of the page: one server with the small real model, which wants a key of all; one browser."""

from collections.abc import Iterator

import pytest
from selenium.webdriver import Chrome

from tests.server.running import Server, run_server
from tests.web.browsing import CHROMIUM, DRIVER, Page, chromium


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with run_server(tmp_path_factory.mktemp("web"), LOCAL_OWNER="off") as started:
        yield started


@pytest.fixture(scope="session")
def key(server: Server) -> str:
    """Return the operator's key, which has no limits."""
    return (server.data_dir / "operator-key").read_text().strip()


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("needs chromium and chromedriver: apt-get install chromium chromium-driver")
    with chromium(tmp_path_factory.mktemp("browser")) as driver:
        yield driver


@pytest.fixture
def page(server: Server, browser: Chrome, key: str) -> Iterator[Page]:
    """Yield the page. After each test, the console must have no errors, and no other host may have been contacted.

    What the test leaves unfinished is deleted, so that the next one does not meet it in the list of jobs.
    """
    page = Page(browser, server.base)
    page.look()
    page.console()
    page.hosts()
    try:
        yield page
        assert page.console() == []
        assert page.hosts() <= {server.base.removeprefix("http://")}
    finally:
        browser.get("about:blank")
        with server.client(key) as client:
            for job in client.get("/v1/jobs", params={"status": "queued,processing"}).json()["data"]:
                client.delete(f"/v1/jobs/{job['job_id']}", params={"force": "true"})

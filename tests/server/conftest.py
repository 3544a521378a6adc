"""Servers that many tests share. Each is started once, some as processes and some in this process."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from server.metrics import Metrics
from server.storage.sql.storage import Storage
from tests.server.buckets import BucketService, bucket_service
from tests.server.clustering import start_cluster
from tests.server.running import ROOT, Server, run_server
from tests.server.serving import AppServer, ScriptedBatch, serve
from tests.server.storing import BACKENDS, Backend, ManualClock, storage_in
from tests.server.talking import HASTY, IMPATIENT, Caller
from tests.server.working import Gate, WorkerHarness, speak


@pytest.fixture(scope="session", params=sorted(BACKENDS))
def backend(request: pytest.FixtureRequest) -> Backend:
    """Return each storage backend in turn, so that a test holds for all of them."""
    return BACKENDS[request.param]


@pytest.fixture(scope="session")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BucketService]:
    """Yield a service that speaks S3, with one bucket."""
    with bucket_service(tmp_path_factory.mktemp("bucket")) as started:
        yield started


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def storage(backend: Backend, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Storage]:
    """Yield a new storage with each backend in turn, on a clock that stands still."""
    async with backend.storage_in(tmp_path, clock) as opened:
        yield opened


@pytest.fixture
async def sqlite(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Storage]:
    """Yield one for tests that need any storage, or look inside of SQLite's."""
    async with storage_in(tmp_path, clock) as opened:
        yield opened


@pytest.fixture
def harness(sqlite: Storage, clock: ManualClock) -> WorkerHarness:
    return WorkerHarness(sqlite, clock, ScriptedBatch(), Metrics())


@pytest.fixture
def gate(harness: WorkerHarness) -> Gate:
    """Return what a job with the prompt "gate" waits for. One with "speak" says the same without a pause."""
    made = Gate()
    harness.batch.scripts |= {"gate": made.script, "speak": speak}
    return made


FORMS = ("one machine", "cluster")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the black-box tests of the contract against both forms of the server."""
    if metafunc.module.__name__.rpartition(".")[2].startswith("test_contract_"):
        for name in {"server", "small_server"} & set(metafunc.fixturenames):
            metafunc.parametrize(name, FORMS, indirect=True, scope="session")


@contextmanager
def in_form(request: pytest.FixtureRequest, folder: Path, **variables: str) -> Iterator[Server]:
    """Start a server of the form that the test asks for: one machine, or two nodes behind a balancer."""
    if getattr(request, "param", FORMS[0]) == FORMS[0]:
        with run_server(folder, **variables) as started:
            yield started
    else:
        with start_cluster(folder, request.getfixturevalue("bucket"), **variables) as cluster:
            yield cluster


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield a server with the small real Whisper model."""
    with in_form(request, tmp_path_factory.mktemp("data")) as started:
        yield started


@pytest.fixture(scope="session")
def bundled_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield a server with the model of the installation."""
    with run_server(tmp_path_factory.mktemp("bundled"), ENGINE="auto", WHISPER_MODEL="tiny.en") as started:
        yield started


@pytest.fixture(scope="session")
def small_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield a server with the scripted engine, a free plan that takes one mebibyte, and short waits for webhooks."""
    folder = tmp_path_factory.mktemp("small")
    limits = _write_limits((ROOT / "server" / "limits.toml").read_text(), folder)
    variables = {"ENGINE": "scripted", "LIMITS_FILE": str(limits), "CORS_ORIGINS": "*"}
    with in_form(request, folder / "data", **variables) as started:
        yield started


@pytest.fixture(scope="session")
def live_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppServer]:
    """Yield a server in this process, whose live sessions use the scripted engine."""
    with serve(tmp_path_factory.mktemp("live")) as started:
        yield started


@pytest.fixture(scope="session")
def hasty_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppServer]:
    """Yield the same server with short polling intervals."""
    with serve(tmp_path_factory.mktemp("hasty"), live=HASTY) as started:
        yield started


@pytest.fixture(scope="session")
def impatient_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppServer]:
    """Yield the same server, on which a session ends after a second without its writer."""
    with serve(tmp_path_factory.mktemp("impatient"), live=IMPATIENT) as started:
        yield started


@pytest.fixture
def me(live_server: AppServer) -> Caller:
    return Caller(live_server, live_server.key())


@pytest.fixture
def hasty_caller(hasty_server: AppServer) -> Caller:
    return Caller(hasty_server, hasty_server.key())


@pytest.fixture
def impatient_caller(impatient_server: AppServer) -> Caller:
    return Caller(impatient_server, impatient_server.key())


def _write_limits(text: str, folder: Path) -> Path:
    path = folder / "limits.toml"
    for before, after in {
        "upload_mib = 512": "upload_mib = 1",
        "delays_s = [5, 300,": "delays_s = [1, 300,",
        "timeout_s = 15": "timeout_s = 2",
    }.items():
        assert before in text
        text = text.replace(before, after, 1)
    path.write_text(text)
    return path

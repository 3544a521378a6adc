"""Two nodes on one database and one bucket: what one of them does, the other shows, and what dies is taken over."""

import asyncio
import random
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from server import __version__
from server.config import Config, ConfigError
from tests.processes import free_port
from tests.server.clustering import Cluster, start_cluster
from tests.server.postgres import new_cluster, shared_cluster
from tests.server.running import CLIP, Server
from tests.server.talking import SECOND, Caller, Frame, Talk, durable, open_talk, script_words, silence
from tests.waiting import eventually, until

TAKE_OVER_S = 20


@pytest.fixture(scope="module")
def nodes(tmp_path_factory, bucket):
    with start_cluster(
        tmp_path_factory.mktemp("nodes"), bucket, ENGINE="scripted", TRUSTED_PROXIES="127.0.0.0/8"
    ) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def key(nodes: Cluster) -> str:
    return nodes.new_key("enterprise")


def callers(nodes: Cluster, key: str) -> list[Caller]:
    return [Caller(node, key) for node in nodes.nodes]


async def resume(me: Caller, record: Frame, audio: bytes, *, max_s: float = TAKE_OVER_S) -> tuple[Talk, float]:
    """Connect until the session is taken over, send what is missing of *audio*, and end it. Returns the seconds."""
    began = time.monotonic()
    while True:
        assert time.monotonic() - began < max_s, "nobody took the session over"
        with suppress(ConnectionClosed, InvalidStatus, OSError):
            async with open_talk(me.socket(record), me.headers) as talk:
                ready = await talk.next()
                if "received_bytes" in ready:
                    took_s = time.monotonic() - began
                    await talk.send(audio[ready["received_bytes"] :], piece_s=0.25)
                    await talk.close()
                    return talk, took_s
        await asyncio.sleep(0.3)  # before the next attempt, as a client does


async def read(callers_: list[Caller], record: Frame) -> list[Frame]:
    """Return every event, of a reader that begins at the first of *callers_* and goes on wherever it can."""
    frames: list[Frame] = []
    while True:
        for me in callers_:
            last = frames[-1]["seq"] if frames else 0
            talk = None
            with suppress(ConnectionClosed, InvalidStatus, OSError, AssertionError):
                async with open_talk(f"{me.socket(record, 'stream')}?last_event_id={last}", me.headers) as talk:
                    await talk.to_the_end()
            frames += durable(talk.frames) if talk is not None else []
            if frames and frames[-1]["type"] == "job.completed":
                return frames
            await asyncio.sleep(0.3)  # before the next attempt


async def test_words_reach_readers_on_another_node_soon_and_partials_too(nodes, key):
    here, there = callers(nodes, key)
    record = await here.start(max_utterance_s=3)
    connected: list[str] = []
    times: dict[str, dict[int, float]] = {"here": {}, "there": {}}

    async def watch(me: Caller, name: str) -> Talk:
        async with open_talk(me.socket(record, "stream"), me.headers) as talk:
            connected.append(name)
            with suppress(ConnectionClosed):
                while True:
                    frame = await talk.next()
                    if frame["type"] == "word":
                        times[name][frame["index"]] = time.monotonic()
            return talk

    watching = [asyncio.create_task(watch(here, "here")), asyncio.create_task(watch(there, "there"))]
    await eventually(lambda: len(connected) == 2)
    async with open_talk(here.socket(record), here.headers) as talk:
        for _ in range(80):
            await talk.send(silence(0.25), piece_s=0.25)
            await asyncio.sleep(0.1)  # somewhat faster than somebody speaks
        await talk.close()
    near, far = [await task for task in watching]
    assert durable(near.frames) == durable(far.frames)
    assert far.of("partial"), "a reader elsewhere sees words that may still change"
    late = sorted(times["there"][index] - times["here"][index] for index in times["here"])
    assert statistics.median(late) < 0.25


async def test_a_writer_that_left_one_node_goes_on_at_the_other(nodes, key):
    here, there = callers(nodes, key)
    record = await here.start(max_utterance_s=3)
    async with open_talk(here.socket(record), here.headers) as talk:
        await talk.send(silence(6), piece_s=0.25)
        await talk.until(lambda frame: frame.get("index") == 8)
    _, took_s = await resume(there, record, silence(12))
    job = await there.job(record["job_id"])
    assert job["text"] == " ".join(script_words(12))
    assert took_s < TAKE_OVER_S


def test_limits_hold_for_all_nodes_together(nodes):
    headers = {"Authorization": f"Bearer {nodes.new_key('free')}"}
    one, other = (httpx.Client(base_url=node.base, headers=headers) for node in nodes.nodes)
    chance = random.Random(5)
    with one, other:
        answers = [chance.choice([one, other]).get("/v1/jobs") for _ in range(31)]
    assert [answer.status_code for answer in answers] == [200] * 30 + [429]
    assert answers[-1].json()["code"] == "rate_limited"
    assert 0 < int(answers[-1].headers["retry-after"]) <= 60


def test_wrong_keys_are_counted_for_all_nodes_together(nodes):
    headers = {"Authorization": "Bearer nonsense", "X-Forwarded-For": "192.0.2.1"}
    one, other = (httpx.Client(base_url=node.base, headers=headers) for node in nodes.nodes)
    with one, other:
        statuses = [(one, other)[number % 2].get("/v1/jobs").status_code for number in range(64)]
        elsewhere = one.get("/v1/jobs", headers={"X-Forwarded-For": "192.0.2.2"})
    assert statuses == [401] * 60 + [429] * 4
    assert elsewhere.status_code == 401


async def test_while_a_newer_node_adds_to_the_tables_an_older_one_works_on(nodes, key, bucket, tmp_path):
    audio = silence(12)
    here = callers(nodes, key)[0]
    newer = Server(tmp_path, {**nodes.variables, "NODE": "newer"}, beyond=bucket.env, program="tests.server.newer_node")
    record = await here.start(max_utterance_s=3)
    async with open_talk(here.socket(record), here.headers) as talk, here.client() as client:
        await talk.send(audio[: 4 * SECOND], piece_s=0.25)
        for _ in range(40):  # until the statements are planned
            assert (await client.get(f"/v1/jobs/{record['job_id']}")).status_code == 200
        starting = asyncio.create_task(asyncio.to_thread(newer.start))
        while not starting.done():
            assert (await client.get(f"/v1/jobs/{record['job_id']}")).status_code == 200
            job = await client.post("/v1/transcribe", files={"file": CLIP.read_bytes()}, data={"wait": "60"})
            assert job.json()["status"] == "completed"
        await talk.send(audio[4 * SECOND :], piece_s=0.25)
        await talk.close()
    there = Caller(newer, key)
    assert (await there.job(record["job_id"]))["text"] == " ".join(script_words(12))
    resuming = await here.start(max_utterance_s=3)  # begun at the older node, ended at the newer one
    async with open_talk(here.socket(resuming), here.headers) as talk:
        await talk.send(audio[: 6 * SECOND], piece_s=0.25)
        await talk.until("word")
    await resume(there, resuming, audio)
    assert (await here.job(resuming["job_id"]))["text"] == " ".join(script_words(12))
    assert await asyncio.to_thread(newer.stop) == 0
    assert not [line for line in (*nodes.log, *newer.log) if " error " in line]


def test_no_password_is_logged(nodes):
    assert "unsaid" not in "\n".join(nodes.log)


async def test_a_node_that_dies_is_replaced_and_no_reader_sees_a_word_twice(tmp_path, bucket):
    audio = silence(15)
    with start_cluster(tmp_path, bucket, ENGINE="scripted") as cluster:
        here, there = callers(cluster, cluster.new_key("enterprise"))
        record = await here.start(max_utterance_s=3)
        readers = [asyncio.create_task(read(order, record)) for order in ([here, there], [there])]
        async with open_talk(here.socket(record), here.headers) as talk:
            await talk.send(audio[: 10 * SECOND], piece_s=0.25)
            await talk.until(lambda frame: frame.get("index") == 18)
            cluster.nodes[0].kill()
            with suppress(ConnectionClosed):
                while True:
                    await talk.next()
        _, took_s = await resume(there, record, audio)
        assert took_s < TAKE_OVER_S
        one, two = [await reader for reader in readers]
        assert one == two
        assert [frame["seq"] for frame in one] == list(range(1, len(one) + 1))
        assert [frame["word"] for frame in one if frame["type"] == "word"] == script_words(15)
        assert (await there.job(record["job_id"]))["text"] == " ".join(script_words(15))


async def test_while_the_database_is_away_readers_stay_and_requests_are_told_to_come_back(tmp_path, bucket):
    postgres = new_cluster(free_port())
    audio = silence(20)
    with start_cluster(tmp_path, bucket, postgres=postgres, ENGINE="scripted") as cluster:
        here, there = callers(cluster, cluster.new_key("enterprise"))
        record = await here.start(max_utterance_s=3)
        async with (
            open_talk(here.socket(record), here.headers) as writer,
            open_talk(there.socket(record, "stream"), there.headers) as reader,
        ):
            await writer.send(audio[: 5 * SECOND], piece_s=0.25)
            await writer.until("word")
            await asyncio.to_thread(postgres.stop, "immediate")
            await writer.send(audio[5 * SECOND : 10 * SECOND], piece_s=0.25)
            await asyncio.sleep(17)  # longer than the session's lease
            for caller in (here, there):
                await away(caller)
            await asyncio.to_thread(postgres.start)
            await until_ready(here)
            await writer.send(audio[10 * SECOND :], piece_s=0.25)
            await writer.say("close")
            assert await writer.to_the_end() == (1000, ""), "\n".join(cluster.log)
            assert await reader.to_the_end() == (1000, "")
        assert reader.words == script_words(20)
        assert [frame["seq"] for frame in durable(reader.frames)] == list(range(1, len(durable(reader.frames)) + 1))


async def away(me: Caller) -> None:
    """Check that requests are refused for now, and that a balancer is told so."""
    async with me.client() as client:
        for path in ("/v1/jobs", "/readyz"):
            answer = await client.get(path)
            assert (answer.status_code, answer.json()["code"]) == (503, "not_ready"), path
            assert int(answer.headers["retry-after"]) > 0
        assert (await client.get("/healthz")).status_code == 200


async def until_ready(me: Caller) -> None:
    async with me.client() as client:

        async def is_ready() -> bool:
            return (await client.get("/readyz")).is_success

        await eventually(is_ready)


def test_a_node_does_only_what_its_roles_say_and_loads_the_model_only_for_that(tmp_path, bucket):
    nodes = [{"ROLES": "worker"}, {"ROLES": "api,courier", "WHISPER_MODEL": "/nowhere"}]
    with start_cluster(tmp_path, bucket, nodes=nodes) as cluster:
        working, answering = cluster.nodes
        headers = {"Authorization": f"Bearer {cluster.new_key('enterprise')}"}
        with httpx.Client(base_url=answering.base, headers=headers, timeout=60) as client:
            answer = client.post("/v1/live", json={})
            assert (answer.status_code, answer.json()["code"]) == (503, "queue_full")
            ready = client.get("/readyz").json()
            assert ready == httpx.get(f"{working.base}/readyz").json()
            assert (ready["engine"], ready["languages"]) == ("whisper", ["de", "en", "es", "fr"])
            files = {"file": CLIP.read_bytes()}
            assert client.post("/v1/transcribe", files=files, data={"language": "it"}).status_code == 422
            assert client.post("/v1/transcribe", files=files, data={"wait": "60"}).json()["status"] == "completed"
        pages = [httpx.get(f"{node.base}/metrics").text for node in cluster.nodes]
        for page, labels in zip(
            pages, ('node="node0",roles="worker"', 'node="node1",roles="api,courier"'), strict=True
        ):
            assert f'scribewire_node_info{{{labels},version="{__version__}"}} 1.0' in page.splitlines()
        assert "ctranslate2" not in Path(f"/proc/{answering.process.pid}/maps").read_text()
        assert any(line.endswith("roles=api,courier") for line in cluster.log if "ready http" in line)
        said = " ".join(answering.cli("doctor").split())
        assert "not loaded: the roles api, courier leave hearing to other nodes" in said


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"DATABASE_URL": "postgresql://me:geheim@db/x"}, "SCRIBEWIRE_BLOBS must be set"),
        ({"BLOBS": "s3://bucket"}, "SCRIBEWIRE_DATABASE_URL must be set"),
        ({"DATABASE_URL": "me:geheim@db", "BLOBS": "s3://bucket"}, "must begin with postgresql://"),
        ({"ROLES": "api,cook"}, "live, worker, courier"),
        ({"ROLES": "api"}, "SCRIBEWIRE_DATABASE_URL is set"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused_in_one_sentence(given, says):
    with pytest.raises(ConfigError, match=says) as told:
        Config.from_env({f"SCRIBEWIRE_{name}": value for name, value in given.items()})
    assert "geheim" not in str(told.value)
    assert "\n" not in str(told.value)


def test_the_url_of_the_database_is_not_shown_with_the_settings():
    given = {"SCRIBEWIRE_DATABASE_URL": "postgresql://me:geheim@db/x", "SCRIBEWIRE_BLOBS": "s3://bucket"}
    assert "geheim" not in repr(Config.from_env(given))


def test_a_bucket_that_cannot_be_used_stops_the_start_with_a_sentence(tmp_path, bucket):
    variables = {"DATABASE_URL": shared_cluster().new_database(), "BLOBS": "s3://nowhere/at-all"}
    server = Server(tmp_path / "data", variables, beyond=bucket.env)
    with pytest.raises(AssertionError):
        server.start()
    assert server.process.wait(10) == 2
    assert server.log[-1] == "scribewire: The bucket nowhere does not exist."


def test_a_start_waits_for_a_bucket_that_does_not_answer_yet(tmp_path, bucket):
    variables = {"DATABASE_URL": shared_cluster().new_database(), "BLOBS": bucket.prefix(), "ENGINE": "scripted"}
    server = Server(tmp_path / "data", variables, beyond=bucket.env)
    with ThreadPoolExecutor(1) as thread:
        with bucket.fail_with("away"):
            started = thread.submit(server.start)
            until(lambda: any(line.endswith("waiting for the bucket") for line in server.log))
        started.result()
    assert server.stop() == 0


def test_a_database_that_is_not_there_stops_the_start_with_a_sentence(tmp_path, bucket):
    variables = {"DATABASE_URL": f"postgresql://me:geheim@127.0.0.1:{free_port()}/x", "BLOBS": bucket.prefix()}
    server = Server(tmp_path / "data", variables, beyond=bucket.env)
    with pytest.raises(AssertionError):
        server.start()
    assert server.process.wait(10) == 2
    assert server.log[-1] == "scribewire: The database does not answer; try again."
    assert "geheim" not in "\n".join(server.log)

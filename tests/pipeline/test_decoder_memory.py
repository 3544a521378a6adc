"""Tests of memory.py, and of what one decoder may take and say."""

import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.errors import DecodersBusy, InvalidAudio
from pipeline.ingest import isolation as isolation_module
from pipeline.ingest import memory as memories
from pipeline.ingest.cell import EXPENDABLE, MEMORY_BYTES
from pipeline.ingest.input_formats import DecodeLimits
from pipeline.ingest.isolation import Isolation
from pipeline.ingest.memory import DECODER_BYTES, DecoderMemory, usable_bytes
from tests.pipeline.boxes import mp4_of_samples
from tests.pipeline.sounds import CLIP
from tests.waiting import until

ANY = DecodeLimits()
SAMPLES_OF_12_H = 12 * 3600 * 48_000 // 1024
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory of a process")


@pytest.fixture(scope="module")
def isolation() -> Iterator[Isolation]:
    with Isolation(memory=DecoderMemory(4 * DECODER_BYTES)) as isolation:
        yield isolation


def test_parts_are_given_while_there_is_room_and_again_when_one_came_back():
    memory = DecoderMemory(4 * DECODER_BYTES)
    first = [memory.try_claim(share=0.5) for _ in range(3)]
    assert [part is not None for part in first] == [True, True, False]
    parts = [memory.claim(wait_s=0), memory.claim(wait_s=0)]
    assert memory.used_bytes == 4 * DECODER_BYTES
    with pytest.raises(DecodersBusy):
        memory.claim(wait_s=0.01)
    threading.Timer(0.05, parts[0].release).start()
    memory.claim(wait_s=30)
    for _ in range(2):
        parts[1].release()  # the second time does nothing
    assert memory.used_bytes == 3 * DECODER_BYTES


def test_a_decoder_gives_its_part_back_however_it_ends(isolation, tmp_path):
    with isolation.decoding(CLIP, ANY) as audio:
        next(iter(audio))
        assert isolation.memory.used_bytes == DECODER_BYTES
    broken = tmp_path / "broken"
    broken.write_bytes(b"RIFF nothing")
    for path, error in ((broken, Exception), (tmp_path / "none", FileNotFoundError)):
        with pytest.raises(error):
            isolation.probe(path, ANY)
    with isolation.live(ANY) as stream:
        stream.kill()
    assert isolation.memory.used_bytes == 0


@linux
def test_an_index_of_millions_of_samples_takes_no_more_than_a_part(isolation, tmp_path):
    path = tmp_path / "index.mp4"
    path.write_bytes(mp4_of_samples(20_000_000))
    with pytest.raises(InvalidAudio):
        isolation.probe(path, ANY)
    path.write_bytes(mp4_of_samples(SAMPLES_OF_12_H))
    assert isolation.probe(path, ANY).codec == "aac"


@linux
def test_a_decoder_is_limited_and_the_first_to_go_where_memory_runs_out(isolation):
    with isolation.decoding(CLIP, ANY) as audio:
        place = Path(f"/proc/{audio._process._pid}")
        limits = (place / "limits").read_text()
        found = re.search(r"Max address space +(\d+) +(\d+)", limits)
        mapped = int((place / "statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        assert found[1] == found[2]
        assert mapped < int(found[1]) <= mapped + MEMORY_BYTES
        assert int(found[1]) <= 325e6
        assert int((place / "oom_score_adj").read_text()) == EXPENDABLE
        assert str((place / "fd" / "2").readlink()).startswith("pipe:")


def test_what_decoders_write_is_escaped_cut_and_not_logged_without_end(caplog):
    forged = b"2026-11-23 info ready\n\x1b[31m\xff\n" + b"x" * 1000 + b"\n" + b"y\n" * 1000
    with caplog.at_level(logging.WARNING, logger=isolation_module.__name__):
        writer = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert writer.stdin is not None
        assert writer.stdout is not None
        with writer.stdin as lines:
            lines.write(forged)
        isolation_module._log_lines(writer.stdout)
    assert caplog.messages[:2] == ["a decoder wrote: '2026-11-23 info ready'", r"a decoder wrote: '\x1b[31m\ufffd'"]
    assert max(map(len, caplog.messages)) < isolation_module.MAX_LINE_BYTES + 30
    assert len(caplog.messages) == isolation_module.MAX_LINES + 1
    assert caplog.messages[-1] == "decoders write more lines than are logged"
    assert writer.wait() == 0


@linux
def test_an_error_in_the_forking_process_comes_into_the_log(caplog):
    with Isolation() as isolation, caplog.at_level(logging.WARNING, logger=isolation_module.__name__):
        isolation.start()
        with pytest.raises(ConnectionError):
            isolation._cell.ask(b'{"else": 1}\n')
        until(lambda: "a decoder wrote: 'ValueError: no such request'" in caplog.messages)


def test_the_limit_of_a_control_group_counts_where_it_is_less_than_the_machine(tmp_path, monkeypatch):
    machine = usable_bytes()
    assert machine > 0
    monkeypatch.setattr(memories, "_CGROUPS", tmp_path)
    (tmp_path / "memory.max").write_text("max\n")
    everything = usable_bytes()
    assert everything >= machine
    (tmp_path / "memory.max").write_text("1000000\n")
    assert usable_bytes() == 1_000_000

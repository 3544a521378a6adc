"""What the server does about its decoders: closes its own memory, and says where they cannot be confined."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipeline.ingest import seccomp
from server.engines import open_engines
from tests.processes import output_of
from tests.server.serving import config

COMMAND = """
import argparse, asyncio, ctypes, sys, uvloop
from server.commands import {command}
from server.config import Config

def run(work):
    work.close()
    print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))  # PR_GET_DUMPABLE, when the process would begin its work

asyncio.run = uvloop.run = run
{command}.run(argparse.Namespace(), Config.from_env({{"SCRIBEWIRE_DATA_DIR": sys.argv[1]}}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
@pytest.mark.parametrize("command", ["serve", "worker"])
def test_servers_and_workers_close_their_memory(command, tmp_path):
    assert output_of(COMMAND.format(command=command), str(tmp_path)) == "0"


def test_a_system_without_filters_is_named_in_the_log_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(seccomp, "missing_support", lambda: "plan9 has no seccomp")
    settings = config(DATA_DIR=str(tmp_path), ENGINE="scripted")
    with ThreadPoolExecutor(2) as threads, open_engines(settings, threads):
        pass
    [line] = [record.getMessage() for record in caplog.records if "system calls" in record.getMessage()]
    assert line == "decoders run without a filter of system calls: plan9 has no seccomp"

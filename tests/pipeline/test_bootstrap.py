"""Tests of bootstrap.py in separate processes: what it sets up for CTranslate2, and which priority its threads have."""

import os
import sys

import pytest

from pipeline.recognition.engines import bootstrap
from pipeline.recognition.engines.bootstrap import MAX_REPLICAS, MAX_THREADS, replica_count, thread_count
from tests.processes import output_of

PREPARED = "import os; from pipeline.recognition.engines import bootstrap; bootstrap.prepare(); "


def test_what_the_user_chose_is_left():
    chosen = output_of(PREPARED + "print(os.environ['CT2_FORCE_CPU_ISA'])", CT2_FORCE_CPU_ISA="GENERIC")
    assert chosen == "GENERIC"


@pytest.mark.parametrize(
    ("machine", "megabytes", "threads", "replicas"),
    [
        ((1, 99), 75, 1, 1),
        ((2, 99), 75, 1, 2),
        ((4, 99), 145, 1, 4),
        ((16, 99), 75, 1, MAX_REPLICAS),
        ((2, 99), 484, 1, 2),
        ((6, 99), 484, 2, 3),
        ((4, 99), 1530, 3, 1),
        ((16, 99), 1530, 4, 4),
        ((6, 99), 3090, 5, 1),
        ((64, 99), 3090, MAX_THREADS, MAX_REPLICAS),
        ((64, 3), 3090, 2, 1),
    ],
)
def test_small_models_answer_several_calls_and_large_ones_use_several_threads(
    machine, megabytes, threads, replicas, monkeypatch
):
    usable, granted = machine
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(usable)), raising=False)
    monkeypatch.setattr(bootstrap, "_quota", lambda: granted)
    assert thread_count(None, megabytes * 10**6) == threads
    assert replica_count(bootstrap.cores(), threads) == replicas
    assert thread_count(3, megabytes * 10**6) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives threads a priority of their own")
def test_threads_of_the_model_have_the_priority_of_the_process():
    program = (
        "import asyncio, os\n"
        "import numpy as np\n"
        "from pipeline.recognition.engine import DecodeRequest\n"
        "from pipeline.recognition.model_set import EngineSettings\n"
        "from pipeline.recognition.engines.load import load\n"
        "from pipeline.recognition.scheduler import Scheduler\n"
        "engine = load(EngineSettings(engine='whisper', model='tests/speech/tiny-whisper', threads=2))\n"
        "request = DecodeRequest(samples=np.zeros(16000, np.float32), start=0)\n"
        "asyncio.run(Scheduler(engine).recognise(request, tenant='a'))\n"
        "print({os.getpriority(os.PRIO_PROCESS, int(task)) for task in os.listdir('/proc/self/task')})"
    )
    own = os.getpriority(os.PRIO_PROCESS, 0)  # the tests may give way to others themselves
    assert output_of(program) == f"{{{own}}}"

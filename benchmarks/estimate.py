"""What an estimate costs in CPU time: imports, loading, the default catalogue, and the most expensive requests known.

    .venv/bin/python -m benchmarks.estimate          # writes benchmarks/results/estimate.json

CPU time of this process, the median of several rounds. "longest_pause_ms" is wall time: for how long another thread of
the process had to wait while the prompt was counted.
"""

import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from benchmarks.measure import write
from estimator import EstimateRequest, Estimator, UnknownModels, parse_request

ROUNDS = 9
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)

REQUESTS: dict[str, dict[str, object]] = {
    "33 models, 200 turns, 20,000 tokens": {"prompt": "word " * 20_000, "agent_turns": 200},
    "33 models, 1 turn, 4 tokens": {"prompt": "Hello, world!"},
    "33 models, 200 turns, budget": {"prompt": "Hello, world!", "agent_turns": 200, "budget_usd": "5"},
    "100 unknown ids": {"prompt": "", "models": [f"openrouter/openai/gpt-5-min{n}" for n in range(100)]},
    "2 MB of prose": {"prompt": "The quick brown fox. " * 95_000, "models": ["gpt-5-mini"]},
    "2 MB of spaces": {"prompt": " " * 2_000_000, "models": ["gpt-5-mini"]},
    "256 kB of spaces": {"prompt": " " * 256_000, "models": ["gpt-5-mini"]},
}


def main() -> None:
    loading = {f"import {name}": import_ms(name) for name in ("estimator", "estimator.catalog")}
    started = time.process_time()
    estimator = Estimator()
    estimator.warm()
    loading["warm()"] = ms(time.process_time() - started)
    requests = {name: cpu_ms(estimator, parse_request(body)) for name, body in REQUESTS.items()}
    result = {
        "loading_cpu_ms": loading,
        "request_cpu_ms": requests,
        "longest_pause_ms": longest_pause(lambda: run(estimator, parse_request(REQUESTS["2 MB of spaces"]))),
    }
    print(json.dumps(result, indent=1))
    print(write("estimate", result))


def run(estimator: Estimator, request: EstimateRequest) -> None:
    try:
        estimator.estimate(request, now=NOW, estimate_id="est_0")
    except UnknownModels:
        return  # the answer to a hundred misspelt names, and the dearest one


def cpu_ms(estimator: Estimator, request: EstimateRequest) -> dict[str, float]:
    spent = []
    for _ in range(ROUNDS):
        started = time.process_time()
        run(estimator, request)
        spent.append(ms(time.process_time() - started))
    return {"median": statistics.median(spent), "most": max(spent)}


def import_ms(name: str) -> float:
    """Return the CPU time of importing *name* in a new interpreter, minus that of the interpreter itself."""
    code = f"import time; before = time.process_time(); import {name}; print(time.process_time() - before)"
    spent = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    ]
    return ms(statistics.median(spent))


def longest_pause(work: Callable[[], None]) -> float:
    """Return the longest time in milliseconds that this thread had to wait while another one did *work*."""
    thread = threading.Thread(target=work)
    longest, before = 0.0, time.perf_counter()
    thread.start()
    while thread.is_alive():
        time.sleep(0.0005)
        now = time.perf_counter()
        longest, before = max(longest, now - before), now
    return ms(longest)


def ms(seconds: float) -> float:
    return round(seconds * 1000, 1)


if __name__ == "__main__":
    main()

"""A server or worker that hears scripted words, which cost nothing, and real voices, and whose leases are short."""

import sys
from dataclasses import replace
from functools import partial
from typing import Any

from server import app, engines, worker_process
from server.__main__ import main
from server.app import LIVE_RULES
from server.commands import serve
from server.jobs.leases import WorkerRules

make_engine = engines._serve


def serve_voiced(opened: Any, voices: Any, *arguments: Any, **options: Any) -> engines.ServedModels:
    return make_engine(opened, replace(voices, speakers=engines.load_speaker_models()), *arguments, **options)


if __name__ == "__main__":
    engines._serve = serve_voiced
    serve.build = partial(app.build, live_rules=replace(LIVE_RULES, lease_s=3.0, renew_s=1.0))
    worker_process.WorkerRules = partial(WorkerRules, claim_s=1.0, lease_s=3.0, renew_s=1.0)
    sys.exit(main())

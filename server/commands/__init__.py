"""One module per command of the command line: add(commands) defines its arguments, run(given, config) runs it."""

from server.commands import (
    accounts,
    doctor,
    erasures,
    estimate,
    keys,
    live,
    migrate,
    models,
    move,
    serve,
    transcribe,
    worker,
)

COMMANDS = (serve, worker, migrate, move, transcribe, live, models, keys, accounts, erasures, estimate, doctor)

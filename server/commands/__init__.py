"""One module per command of the command line: add(commands) says how it is called, run(given, config) does it."""

from server.commands import accounts, doctor, estimate, keys, live, models, serve, transcribe, worker

COMMANDS = (serve, worker, transcribe, live, models, keys, accounts, estimate, doctor)

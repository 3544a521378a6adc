"""One module per command of the command line: add(commands) says how it is called, run(given, config) does it."""

from server.commands import accounts, doctor, estimate, keys, live, serve, transcribe, worker

COMMANDS = (serve, worker, transcribe, live, keys, accounts, estimate, doctor)

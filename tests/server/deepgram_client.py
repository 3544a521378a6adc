"""Where Deepgram's package finds a server of the tests."""

from deepgram.environment import DeepgramClientEnvironment

from tests.server.running import Server
from tests.server.serving import AppServer


def environment(server: Server | AppServer) -> DeepgramClientEnvironment:
    socket = "ws" + server.base.removeprefix("http")
    return DeepgramClientEnvironment(base=server.base, production=socket, agent=socket, agent_rest=server.base)

"""A stand-in for a chat model that translates: a real HTTP server, which answers with the text in capitals."""

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tests.server.receiving import ReceivedRequest, Receiver, receiver

Reply = tuple[int, dict[str, str], bytes]


@dataclass
class Translator:
    """Answers each request as *behave* says: None for the text in capitals, else a reply of its own."""

    server: Receiver
    behave: Callable[[str, int], Reply | None] = lambda _text, _count: None
    delay_s: float = 0.0
    asked: list[str] = field(default_factory=list)

    @property
    def variables(self) -> Mapping[str, str]:
        """The settings of a server that uses it."""
        return {"TRANSLATION_URL": f"{self.server.url}/v1", "TRANSLATION_MODEL": "stand-in"}

    def answer(self, got: ReceivedRequest) -> Reply:
        text = re.sub("</?text>", "", json.loads(got.body)["messages"][-1]["content"])
        self.asked.append(text)
        time.sleep(self.delay_s)
        return self.behave(text, len(self.asked)) or said(text.upper())


def said(content: str, finish_reason: str = "stop") -> Reply:
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": finish_reason}
    return 200, {"Content-Type": "application/json"}, json.dumps({"choices": [choice]}).encode()


@contextlib.contextmanager
def stand_in() -> Iterator[Translator]:
    with receiver() as there:
        translator = Translator(there)
        there.answer = translator.answer
        yield translator

"""The dialects of this server. A new one is a folder in this one, and a line here."""

from server.dialects.deepgram.dialect import DEEPGRAM
from server.dialects.dialect import Dialect
from server.dialects.openai.dialect import OPENAI

DIALECTS: tuple[Dialect, ...] = (OPENAI, DEEPGRAM)

"""The dialects of this server. A new dialect is a folder next to this file, and a line here."""

from server.dialects.deepgram.dialect import DEEPGRAM
from server.dialects.dialect import Dialect
from server.dialects.openai.dialect import OPENAI

DIALECTS: tuple[Dialect, ...] = (OPENAI, DEEPGRAM)

"""What the model is told of a recording before it hears it: terms that are likely, and the prompt of the client."""

from collections.abc import Sequence


def hint_of(keywords: Sequence[str], prompt: str) -> str:
    """Return the hint of a DecodeRequest: the keywords as a sentence, then the prompt.

    The model reads the first HINT_TOKENS of it, so the keywords come first. It writes as its hint is written, and
    without the full stop its answers would begin in lower case.
    """
    listed = f"{', '.join(keywords)}." if keywords else ""
    return " ".join(part for part in (listed, prompt) if part)

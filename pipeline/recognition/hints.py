"""The text that the model reads before the audio: terms that are likely, and the prompt of the client."""

from collections.abc import Sequence


def hint_of(keywords: Sequence[str], prompt: str) -> str:
    """Return the hint of a DecodeRequest: the keywords as a sentence, then the prompt.

    The model reads only the first HINT_TOKENS, so the keywords come first. It continues in the style of the hint:
    without the full stop its answers would begin in lower case.
    """
    listed = f"{', '.join(keywords)}." if keywords else ""
    return " ".join(part for part in (listed, prompt) if part)

"""The commonest words of a language. Pure.

They come from wordfreq by Robyn Speer (https://github.com/rspeer/wordfreq), whose data is licensed under CC BY-SA 4.0;
`scripts/common_words.py` takes them.
"""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

FOLDER = Path(__file__).parent / "words_by_frequency"
COMMONEST = 3000

LIKE = {"bs": "hr", "sr": "hr", "nn": "no", "gl": "pt"}  # languages without a list, and the nearest that has one


@lru_cache(8)
def ranks_of(language: str) -> Mapping[str, int]:
    """Return the common words of *language*, in lower case, by place: 0 is the commonest; {} if none are known."""
    path = FOLDER / f"{LIKE.get(language, language)}.txt"
    if not path.is_file():
        return {}
    return {word: place for place, word in enumerate(path.read_text(encoding="utf-8").split())}

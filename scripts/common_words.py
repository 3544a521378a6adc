"""Writes pipeline/text/words_by_frequency/: the commonest words of each language, from the package wordfreq.

pip install wordfreq && python scripts/common_words.py

wordfreq has 57 MB and needs four more packages, so its first words are kept here and it is no requirement.
"""

from pathlib import Path

from wordfreq import top_n_list  # type: ignore[import-not-found]  # installed for this script alone

from pipeline.text.names_by_sound import FOLDER

SIZES = {"en": 20_000}
OTHERS = 3_000
NAMES = {"nb": "no", "fil": "tl", "sh": "hr"}  # how Whisper names what wordfreq names otherwise
LANGUAGES = (
    "ar bg bn ca cs da de el en es fa fi fil fr he hi hu id is it ko lt lv mk ms nb nl pl pt ro ru sh sk sl sv ta"
)
MORE_LANGUAGES = "tr uk ur vi"


def _is_word(text: str) -> bool:
    return any(map(str.isalpha, text)) and not any(map(str.isdecimal, text))


def main() -> None:
    for language in f"{LANGUAGES} {MORE_LANGUAGES}".split():
        words = top_n_list(language, SIZES.get(language, OTHERS))
        path: Path = FOLDER / f"{NAMES.get(language, language)}.txt"
        path.write_text("\n".join(filter(_is_word, words)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

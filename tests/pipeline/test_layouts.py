"""Tests of the engine on models with the layouts of all published ones: English only, 99 and 100 languages."""

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest

from pipeline.audio import RATE
from pipeline.recognition.engine import TASKS, DecodeRequest, Hints
from pipeline.recognition.engines import bootstrap
from pipeline.recognition.engines.whisper.windows import FULL, WindowSizes
from pipeline.words import Word
from tests.pipeline.layouts import make_model
from tests.pipeline.noting import RecordingModel
from tests.pipeline.sounds import SPEECH, read

bootstrap.prepare()
from pipeline.recognition.engines.whisper.engine import WhisperEngine  # noqa: E402  after prepare(), as in load.py


@dataclass(frozen=True)
class Layout:
    name: str
    multilingual: bool
    languages: int  # with a token, even in a model of one language
    mels: int
    nothing: str


LAYOUTS = [
    Layout("base.en", False, 99, 80, "nocaptions"),
    Layout("base", True, 99, 80, "nocaptions"),
    Layout("large-v3", True, 100, 128, "nospeech"),
]


@pytest.fixture(scope="module", params=LAYOUTS, ids=lambda layout: layout.name)
def layout(request: pytest.FixtureRequest) -> Layout:
    return request.param  # type: ignore[no-any-return]  # pytest gives Any


@pytest.fixture(scope="module")
def engine(layout: Layout, tmp_path_factory: pytest.TempPathFactory) -> WhisperEngine:
    folder: Path = tmp_path_factory.mktemp(layout.name)
    made = {name: getattr(layout, name) for name in ("multilingual", "languages", "mels", "nothing")}
    make_model(folder, **made)
    return WhisperEngine(folder, model=layout.name)


def test_it_knows_the_languages_of_its_model(layout, engine):
    assert len(engine.languages) == (layout.languages if layout.multilingual else 1)
    assert "en" in engine.languages
    assert ("yue" in engine.languages) == (layout.name == "large-v3")


def test_a_language_is_detected_where_there_is_a_choice(layout, engine):
    found = engine.detect_language(read(SPEECH / "espeak" / "en_00.flac"))
    assert set(found) == engine.languages
    assert (max(found.values()) == 1.0) == (not layout.multilingual)


def believe_nonsense(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the engine believe what models of random weights say."""
    engine = "pipeline.recognition.engines.whisper.engine"
    monkeypatch.setattr(f"{engine}.failed_gate", lambda _text, **_numbers: None)
    monkeypatch.setattr(f"{engine}.before_timeless", lambda words: words)
    monkeypatch.setattr(f"{engine}.skips_speech", lambda _request, _words: False)


@pytest.mark.parametrize(("sizes", "final"), [(FULL, False), (WindowSizes(5, 5, 4), True)], ids=["partial", "final"])
def test_whatever_it_says_is_words_in_order_inside_the_window(engine, sizes, *, final, monkeypatch):
    believe_nonsense(monkeypatch)
    monkeypatch.setattr(engine, "sizes", sizes)
    samples = read(SPEECH / "espeak" / "en_00.flac")[: 3 * RATE]
    languages = sorted({"en", "ja"} & engine.languages)
    requests = [
        DecodeRequest(samples=samples, start=RATE, language=language, hints=Hints(prompt="so they said"), final=final)
        for language in (*languages, None)
    ]
    for heard in engine.recognise(requests):
        assert heard.language in engine.languages
        assert heard.words
        assert all(word.text.strip() for word in heard.words)
        assert all(one.end <= two.start for one, two in pairwise(heard.words))
        assert heard.words[0].start >= RATE
        assert heard.words[-1].end <= RATE + len(samples)


def prompts_of(engine: WhisperEngine, told: list[list[int]]) -> list[str]:
    """Return prompts as text, without what is before the start."""
    tokenizer = engine._tokenizer.tokenizer
    return [tokenizer.decode(ids, skip_special_tokens=False).partition("<|startoftranscript|>")[2] for ids in told]


@pytest.mark.parametrize("hint", ["", "so they said"], ids=["bare", "hinted"])
def test_the_model_is_told_for_each_request_of_a_call_whether_to_translate(layout, engine, hint, monkeypatch):
    noting = RecordingModel(engine._model)
    monkeypatch.setattr(engine, "_model", noting)
    samples = read(SPEECH / "espeak" / "en_00.flac")[: 2 * RATE]
    wanted = [(code, task) for code in ("en", "ja") if code in engine.languages for task in TASKS]
    engine.recognise(
        [
            DecodeRequest(samples=samples, start=0, language=code, task=task, hints=Hints(prompt=hint), final=False)
            for code, task in wanted
        ]
    )
    told = ["<|en|><|transcribe|>", "<|en|><|transcribe|>", "<|ja|><|transcribe|>", "<|ja|><|translate|>"]
    assert engine.translates == layout.multilingual
    assert len({engine.bucket(DecodeRequest(samples=samples, start=0, task=task)) for task in TASKS}) == 1
    assert prompts_of(engine, noting.calls[0]) == [
        f"{start}<|notimestamps|>" for start in (told if layout.multilingual else ["", ""])
    ]


@pytest.mark.parametrize(
    "layout", [one for one in LAYOUTS if one.multilingual], ids=lambda one: one.name, indirect=True
)
def test_a_translation_has_the_words_of_english_in_order_inside_the_window(engine, monkeypatch):
    believe_nonsense(monkeypatch)
    samples = read(SPEECH / "espeak" / "en_00.flac")[: 3 * RATE]
    asked = DecodeRequest(samples=samples, start=RATE, language="ja", final=False)
    asked = replace(asked, decided=(Word("so", RATE, RATE, 1.0), Word("they", RATE, RATE, 1.0)))
    spoken, english = engine.recognise([replace(asked, task=task) for task in TASKS])
    assert [word.text for word in spoken.words[:3]] == ["s", "o", "t"], "Japanese is written without spaces"
    assert [word.text for word in english.words[:2]] == ["so", "they"]
    assert (english.language, all(word.spaced for word in english.words)) == ("ja", True)
    assert all(one.end <= two.start for one, two in pairwise(english.words))
    assert RATE <= english.words[0].start < english.words[-1].end <= RATE + len(samples)

"""Tests of the scores of a folder of speech, with the small test model and clips that it knows."""

import json
import re
import shutil
from pathlib import Path

import pytest
import soundfile

from benchmarks import measure
from benchmarks.corpus import main, recordings_in
from benchmarks.scoring import spoken_words
from benchmarks.tracks import MODEL, SPEECH

TEXTS = {row["file"]: row["text"] for row in json.loads((SPEECH / "manifest.json").read_text())}
WORDS = r"words 18 wer (\d+\.\d) % \(\S+ to \S+\)"
OFF = r" off at pauses \d\.\d\d \d\.\d\d s worst [+-]\d\.\d\d [+-]\d\.\d\d"
CHAPTER, BESIDE = ("espeak/en_00.flac", "espeak/en_04.flac"), "espeak/en_03.flac"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two recordings as LibriSpeech has them, one with its text beside it, and texts of no recording."""
    chapter = tmp_path / "84" / "121123"
    chapter.mkdir(parents=True)
    lines = []
    for number, name in enumerate(CHAPTER):
        shutil.copy(SPEECH / name, chapter / f"84-121123-{number:04}.flac")
        lines.append(f"84-121123-{number:04} {TEXTS[name].upper().strip('.')}\n")
    (chapter / "84-121123.trans.txt").write_text("".join(lines))
    soundfile.write(tmp_path / "Eleven bananas.wav", *soundfile.read(SPEECH / BESIDE))
    (tmp_path / "Eleven bananas.txt").write_text(f"{TEXTS[BESIDE]}\n")
    (tmp_path / "README.txt").write_text("Whose voices these are.")
    return tmp_path


def test_both_layouts_are_found_in_one_folder(folder):
    clips = {clip.path.name: spoken_words(clip.text) for clip in recordings_in(folder)}
    assert list(clips) == ["84-121123-0000.flac", "84-121123-0001.flac", "Eleven bananas.wav"]
    assert clips["84-121123-0000.flac"] == ["we", "heard", "a", "quiet", "sugar"]
    assert clips["Eleven bananas.wav"] == ["eleven", "yellow", "banana", "under", "our", "green", "dinner"]


@pytest.mark.parametrize("name", ["84/121123/84-121123-0001.flac", "Eleven bananas.wav"])
def test_a_listed_recording_must_be_there_and_a_text_alone_is_none(folder, name):
    (folder / name).unlink()
    if name.endswith(".wav"):
        assert len(list(recordings_in(folder))) == 2
    else:
        with pytest.raises(SystemExit, match=r"lists 84-121123-0001, but 84-121123-0001\.flac is not beside it"):
            list(recordings_in(folder))


def test_a_folder_without_recordings_and_a_file_of_no_sound_are_one_sentence(folder):
    with pytest.raises(SystemExit, match="has no recordings with words: it must hold LibriSpeech's"):
        main([str(folder / "nowhere")])
    (folder / "broken.m4a").write_bytes(b"no sound")
    (folder / "broken.txt").write_text("words")
    with pytest.raises(SystemExit, match=r"broken\.m4a cannot be heard: "):
        main([str(folder), "--model", MODEL])


def test_each_system_has_a_line_with_words_errors_and_speed_and_live_words_their_latency(
    folder, capsys, monkeypatch, tmp_path
):
    monkeypatch.setattr(measure, "RESULTS", tmp_path / "results")
    main([str(folder), "--model", MODEL, "--live"])
    *files, live = capsys.readouterr().out.splitlines()
    for system, line in zip(("ours", "transcribe()", "batched"), files, strict=True):
        figures = re.fullmatch(rf"(.*) {WORDS}{OFF}  (\d+\.\d) s of audio a second", line)
        assert figures is not None, line
        assert figures[1] == system
        assert float(figures[3]) > 0
    assert files[0].startswith("ours words 18 wer 0.0 %")
    figures = re.fullmatch(rf"ours live {WORDS}{OFF} p50 (\d\.\d\d) s p95 (\d\.\d\d) s", live)
    assert figures is not None, live
    assert float(figures[1]) <= 15
    assert 0.2 < float(figures[2]) <= float(figures[3]) < 4
    assert not (tmp_path / "results").exists(), "nothing is written without --write"

"""Tests of the options that all benchmarks share."""

import argparse
from pathlib import Path

import numpy as np
import pytest

from benchmarks.choices import Choices, add_choices, choices_of
from benchmarks.tracks import MODEL, PEOPLE, SPEECH


def parse_choices(*words: str) -> Choices:
    parser = argparse.ArgumentParser()
    add_choices(parser)
    return choices_of(parser.parse_args(words))


def test_people_are_the_default_and_a_model_is_called_by_its_folder() -> None:
    choices = parse_choices("--model", MODEL)
    assert (choices.model, choices.name, choices.speech) == (MODEL, "tiny-whisper", "people")
    assert choices.about() == {"model": "tiny-whisper", "speech": "people"}
    assert {clip.name for clip in choices.clips()} == {path.name for path in PEOPLE.glob("*.flac")}


def test_figures_of_made_speech_have_a_file_of_their_own() -> None:
    assert parse_choices("--model", "base").result("crowd") == "crowd"
    assert parse_choices("--model", MODEL, "--speech", "made").result("crowd") == "crowd-made"


def test_other_folders_take_the_place_of_the_recordings() -> None:
    choices = parse_choices("--model", "base", "--clips", str(SPEECH), "--clips", str(PEOPLE))
    assert choices.folders == (SPEECH, PEOPLE)
    names = [clip.name for clip in choices.clips()]
    assert "espeak/en_05.flac" in names
    assert "jfk.flac" in names
    assert "espeak/es_10.flac" not in names, "English alone"


def test_a_folder_may_be_named_in_its_own_manifest(tmp_path: Path) -> None:
    """The paths in it are then relative to the folder above."""
    folder = tmp_path / "human"
    folder.mkdir()
    manifest = (PEOPLE / "manifest.json").read_text().replace('"file": "', '"file": "human/')
    (folder / "manifest.json").write_text(manifest)
    for clip in PEOPLE.glob("*.flac"):
        (folder / clip.name).symlink_to(clip)
    choices = parse_choices("--model", "base", "--clips", str(folder))
    assert [clip.name for clip in choices.clips()][-1] == "human/jfk.flac"


@pytest.mark.parametrize("speech", ["people", "made"])
def test_tracks_are_of_one_length_and_differ(speech: str) -> None:
    tracks = parse_choices("--model", "base", "--speech", speech).tracks(3, 30.0)
    assert [track.seconds for track in tracks] == [30.0] * 3
    assert all(track.truth and track.language == "en" for track in tracks)
    assert not np.array_equal(tracks[0].samples, tracks[1].samples)
    again = parse_choices("--model", "base", "--speech", speech).tracks(1, 30.0)
    assert np.array_equal(tracks[0].samples, again[0].samples)

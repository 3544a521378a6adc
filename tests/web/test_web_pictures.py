"""Tests that the pictures of all views can be taken, and that the stored ones are small."""

from pathlib import Path

from tests.web.browsing import Page
from tests.web.pictures import MAX_BYTES, REFERENCES, SCREENS, take


def test_pictures_of_every_view_can_be_taken(page: Page, key: str, tmp_path: Path) -> None:
    taken = {path.name for path in take(page, key, tmp_path, screens=("narrow",))}
    kept = {path.name for path in REFERENCES.glob("*.png")}
    assert taken == {name for name in kept if name.endswith("-narrow.png")}
    assert len(kept) == len(taken) * len(SCREENS)


def test_kept_pictures_are_small() -> None:
    assert all(path.stat().st_size < MAX_BYTES for path in REFERENCES.glob("*.png"))

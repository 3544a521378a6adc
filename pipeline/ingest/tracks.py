"""The audio tracks of a container, which of them are wanted, and in which order they are tried. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pipeline.languages import language_named

AUTO, MIX, SEPARATE = "auto", "mix", "separate"
TRACK_MODES = (AUTO, MIX, SEPARATE)
ALL_TRACKS = (MIX, SEPARATE)
"""The choices that need all tracks at the same time."""

TrackChoice: TypeAlias = int | str
"""A number from 1, or one of TRACK_MODES: the usual track, all of them mixed, or all of them as separate channels."""

OTHER_TRACKS = "other_tracks"
"""Note: somebody speaks on a track that was not heard."""
UNDECODABLE_TRACK = "undecodable_track"
"""Note: a track holds nothing that can be decoded, so others were heard."""

MAX_TEXT = 100
"""Characters of a title or language that are kept."""

_ASIDE = re.compile(r"\b(commentary|descri(bed|ptive|ption|ptions))\b", re.IGNORECASE)
"""Titles of tracks beside the usual one, for containers whose tracks have no flags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """An audio track as its container describes it."""

    number: int  # from 1, in the container's order
    codec: str | None = None  # None: there is no decoder
    rate: int = 0  # Hz; 0: not known before decoding
    channels: int = 0  # 0: not known before decoding
    layout: str = ""
    language: str | None = None
    title: str | None = None
    default: bool = False
    aside: bool = False  # a commentary, or a description for people who do not see or hear well
    duration_s: float | None = None  # that the container states

    @property
    def name(self) -> str:
        """What people call it: its number, and in brackets what else tells it apart."""
        told = ", ".join(filter(None, (self.language, self.title)))
        return f"{self.number} ({told})" if told else f"{self.number}"


def is_aside(title: str | None) -> bool:
    """Return whether the *title* of a track is that of a commentary or description."""
    return title is not None and _ASIDE.search(title) is not None


def by_preference(tracks: Sequence[Track], language: str | None = None) -> list[Track]:
    """Return the tracks that can be decoded, in the order in which players would choose them.

    Those in *language*, the code of the one that is spoken, come first.
    """
    usable = [track for track in tracks if track.codec is not None]
    return sorted(usable, key=lambda one: (one.aside, not _is_in(one, language), not one.default, one.number))


def _is_in(track: Track, language: str | None) -> bool:
    named = language_named(track.language or "")
    return language is not None and named is not None and named.code == language


def unknown_track(number: int, tracks: Sequence[Track]) -> str:
    """Return why there is no track *number*, and what may be given instead."""
    names = ", ".join(track.name for track in tracks)
    count = "one audio track" if len(tracks) == 1 else f"{len(tracks)} audio tracks"
    return f"the recording has {count} ({names}), and no track {number}; or give {', '.join(TRACK_MODES)}"

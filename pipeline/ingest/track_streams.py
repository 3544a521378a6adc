"""The audio tracks of an open container. part.py uses it; it has the container of PyAV and decodes nothing."""

from collections.abc import Sequence

import av.stream
from av.audio.stream import AudioStream
from av.container import InputContainer
from av.stream import Disposition

from pipeline.errors import InvalidAudio, NoAudioStream, UndecodableAudio, UnknownTrack
from pipeline.ingest.containers import ISO_MEDIA, DecodeLimits, length_or_none
from pipeline.ingest.tracks import MAX_TEXT, Track, by_preference, is_aside, unknown_track

CUSTOM_ORDERS = frozenset({ISO_MEDIA, "caf", "aiff"})
"""Containers that may name each channel."""

_ASIDE = Disposition.comment | Disposition.visual_impaired | Disposition.hearing_impaired | Disposition.descriptions


def audio_tracks(container: InputContainer, limits: DecodeLimits) -> tuple[Track, ...]:
    """Return all audio tracks. Raises InvalidAudio for a container with none or too many streams, NoAudioStream."""
    count = len(container.streams)
    if count == 0:
        raise InvalidAudio("the container holds no stream")
    if count > limits.max_streams:
        raise InvalidAudio(f"the container holds {count} streams, more than {limits.max_streams}")
    if not container.streams.audio:
        raise NoAudioStream("the file has no audio track")
    for stream in container.streams.audio:
        _forget_custom_order(container.format.name, stream)
    return tuple(_described(number, stream) for number, stream in enumerate(container.streams.audio, 1))


def heard_tracks(tracks: Sequence[Track], number: int | None) -> list[Track]:
    """Return the track *number*, or with None all that can be decoded, the one first that players choose.

    Raises UnknownTrack, UndecodableAudio.
    """
    if number is not None and not 1 <= number <= len(tracks):
        raise UnknownTrack(unknown_track(number, tracks))
    wanted = by_preference(tracks if number is None else tracks[number - 1 : number])
    if not wanted:
        raise UndecodableAudio("there is no decoder for the audio in this container")
    return wanted


def hear(container: InputContainer, tracks: Sequence[Track]) -> list[AudioStream]:
    """Return the streams of *tracks*, and discard the others."""
    streams = [container.streams.audio[track.number - 1] for track in tracks]
    wanted = {stream.index for stream in streams}
    for stream in container.streams:
        if stream.index not in wanted:
            stream.discard = av.stream.Discard.all
    for stream in streams:
        stream.codec_context.thread_count = 1  # more threads do not help audio, and PyAV would start one per core
    return streams


def _forget_custom_order(container: str, stream: AudioStream) -> None:
    """Take the channels of samples in a MOV, CAF or AIFF file for channels without an order.

    Field recorders name them one by one, and PyAV 18 frees such names twice.
    """
    context = stream.codec_context
    if container not in CUSTOM_ORDERS or context is None or not context.codec.name.startswith("pcm_"):
        return
    channels = context.channels  # the one time that PyAV may look at them
    context.layout = f"{channels} channels"


def _described(number: int, stream: AudioStream) -> Track:
    context, tags = stream.codec_context, stream.metadata
    title = tags.get("title") or tags.get("name") or _handler(tags.get("handler_name"))
    language = tags.get("language")
    flags = stream.disposition
    return Track(
        number=number,
        codec=None if context is None else context.codec.canonical_name,
        rate=0 if context is None else context.sample_rate or 0,
        channels=0 if context is None else context.channels or 0,
        layout="" if context is None or not context.channels else context.layout.name,
        language=language[:MAX_TEXT] if language and language != "und" else None,
        title=title[:MAX_TEXT] if title else None,
        default=bool(flags & Disposition.default),
        aside=bool(flags & _ASIDE) or is_aside(title),
        duration_s=length_or_none(float(stream.duration * stream.time_base))
        if stream.duration and stream.time_base
        else None,
    )


def _handler(name: str | None) -> str | None:
    """Return the name that an MP4 file gives a track, unless it is that of the program which wrote it."""
    usual = ("handler", "media", "sound", "audio", "core", "stereo", "mono")
    return None if name is None or any(word in name.lower() for word in usual) else name

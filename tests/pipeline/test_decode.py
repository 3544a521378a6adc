"""Tests of decode.py: any container and codec gives the right samples, and broken files a named error."""

import io
import socket
import struct
import wave

import av
import numpy as np
import pytest

from pipeline.audio import RATE, Samples, position
from pipeline.errors import AudioTooLong, EmptyAudio, InvalidAudio, NoAudioStream, PipelineError, UndecodableAudio
from pipeline.ingest.container import missing_demuxers
from pipeline.ingest.decode import recording
from pipeline.ingest.input_formats import DEMUXERS, INPUT_FORMATS, DecodeLimits, Probe
from pipeline.ingest.notes import FILLED, SKIPPED, TRUNCATED
from tests.pipeline.sounds import (
    CLIP,
    FFMPEG_ALONE,
    LOSSLESS,
    LOSSY,
    codes,
    encode_audio,
    encode_with_ffmpeg,
    film,
    likeness,
    one_byte_packets,
    read,
    tone,
)

ANY = DecodeLimits()


def decode_all(data: bytes, limits: DecodeLimits = ANY) -> tuple[Samples, tuple[str, ...]]:
    with recording(io.BytesIO(data), limits) as heard:
        return np.concatenate(list(heard)), codes(heard.notes)


def probe_of(data: bytes) -> Probe:
    with recording(io.BytesIO(data), ANY) as heard:
        return heard.probe


def refusal(data: bytes, limits: DecodeLimits = ANY) -> type[PipelineError]:
    with pytest.raises(PipelineError) as caught:
        decode_all(data, limits)
    return caught.type


def wav(data: bytes, *, rate: int = RATE, channels: int = 1, kind: int = 1, bits: int = 16) -> bytes:
    """Return a WAV file with any header, even one that no encoder would write."""
    frame = channels * bits // 8
    head = struct.pack(
        "<4sIHHIIHH4sI", b"fmt ", 16, kind, channels, rate, rate * frame, frame, bits, b"data", len(data)
    )
    return b"RIFF" + struct.pack("<I", 4 + len(head) + len(data)) + b"WAVE" + head + data


@pytest.fixture(scope="module")
def clip() -> Samples:
    return read(CLIP)[: position(5.7)]


def test_there_are_48_extensions_and_the_installed_ffmpeg_reads_each_of_them():
    assert len(INPUT_FORMATS) == len({kind.extension for kind in INPUT_FORMATS}) == 48
    assert missing_demuxers() == []
    for demuxer in DEMUXERS:
        assert av.ContainerFormat(demuxer, "r").is_input
    for decoder in ("ape", "musepack7", "musepack8", "dsd_lsbf_planar", "amrwb", "dca", "cook", "gsm", "wmapro"):
        assert av.Codec(decoder, "r").type == "audio"


@pytest.mark.parametrize(("container", "codec", "sample_format"), LOSSLESS)
def test_a_lossless_file_gives_every_sample(clip, container, codec, sample_format):
    samples, notes = decode_all(encode_audio(clip, container, codec, sample_format=sample_format))
    assert 0 <= len(samples) - len(clip) <= 3  # W64 fills up to eight bytes
    assert np.abs(samples[: len(clip)] - clip).max() < 1e-4
    assert notes == ()


@pytest.mark.parametrize("made", LOSSY, ids=lambda made: f"{made[0]}-{made[1]}")
def test_a_lossy_file_gives_the_same_sound_at_the_same_time(clip, made):
    """If the container does not record the encoder's padding, the padding is part of the result."""
    container, codec, rate, layout, extra_ms = made
    bit_rate = 128_000 if codec.startswith("wma") else None
    samples, notes = decode_all(encode_audio(clip, container, codec, rate=rate, layout=layout, bit_rate=bit_rate))
    assert abs(len(samples) - len(clip)) / RATE <= 0.06 + extra_ms / 1000
    lag = max(range(-9, 10), key=lambda lag: likeness(samples, clip, lag))
    assert abs(lag) * 10 <= 40 + extra_ms
    assert likeness(samples, clip, lag) > 0.93
    assert notes == ()


@pytest.mark.parametrize(("suffix", "how"), FFMPEG_ALONE)
def test_formats_that_only_the_ffmpeg_program_writes_are_read(tmp_path, suffix, how):
    clip = read(CLIP)
    samples, _ = decode_all(encode_with_ffmpeg(tmp_path, suffix, how))
    assert abs(len(samples) - len(clip)) / RATE <= 0.1
    assert max(likeness(samples, clip, lag) for lag in range(-5, 6)) > 0.93


@pytest.mark.parametrize("layout", ["mono", "stereo", "2.1", "5.1", "7.1"])
def test_a_downmix_is_as_loud_as_its_channels_and_never_louder_than_full_scale(layout):
    channels = av.AudioLayout(layout).nb_channels
    data = np.repeat((tone(1.0, rate=48000) * 65535).astype("<i2")[:, np.newaxis], channels, axis=1).tobytes()
    samples, _ = decode_all(wav(data, rate=48000, channels=channels))
    assert np.abs(samples[1000:-1000]).max() == pytest.approx(1.0, abs=0.03)
    assert np.abs(samples).max() <= 1.0


def test_samples_that_are_no_numbers_or_out_of_range_are_made_harmless():
    values = np.array([np.nan, np.inf, -np.inf, 1e30, 0.25] * 4000, "<f4")
    samples, _ = decode_all(wav(values.tobytes(), kind=3, bits=32))
    assert len(samples) == 20_000
    assert np.isfinite(samples).all()
    assert np.abs(samples).max() <= 1.0


def test_frames_may_change_rate_and_layout_on_the_way(clip):
    """Two MP3 files in one, as radio recorders and simple joins make them."""
    first = encode_audio(clip, "mp3", "libmp3lame", rate=44100, layout="stereo")
    second = encode_audio(clip, "mp3", "libmp3lame", rate=22050)
    samples, _ = decode_all(first + second)
    assert abs(len(samples) - 2 * len(clip)) < position(0.2)
    assert max(likeness(samples[-len(clip) :], clip, lag) for lag in range(-9, 10)) > 0.93  # both keep their padding


def test_the_length_of_joined_mp3_files_is_a_guess(clip):
    """The first one states its own length alone, and FFmpeg guesses another from its bit rate."""
    first, second = (encode_audio(sound, "mp3", "libmp3lame", rate=44100) for sound in (clip, np.tile(clip, 3)))
    assert probe_of(first).duration_stated
    assert probe_of(second).duration_stated
    for data in (first + second, second + first):
        assert not probe_of(data).duration_stated
        samples, notes = decode_all(data)
        assert len(samples) == pytest.approx(4 * len(clip), abs=position(0.2))
        assert TRUNCATED not in notes


@pytest.mark.parametrize("codec", ["wmav2", "aac"])
def test_a_film_whose_sound_ends_first_is_not_called_cut_off(clip, codec):
    data = encode_audio(clip, "asf", codec, rate=44100, bit_rate=128_000, film=True, film_s=20)
    assert decode_all(data)[1] == ()
    assert probe_of(data).duration_s == pytest.approx(20, abs=0.2)


@pytest.mark.parametrize(("container", "codec"), [("mp4", "aac"), ("matroska", "libopus"), ("mpegts", "aac")])
def test_a_voice_that_comes_in_after_the_pictures_keeps_its_time(clip, container, codec):
    data = encode_audio(clip, container, codec, rate=48000, film=True, start_s=1.5)
    samples, notes = decode_all(data)
    assert np.abs(samples[: position(1.4)]).max() < 1e-4
    assert likeness(samples[position(1.5) :], clip, 0) > 0.9
    assert notes == ()
    duration_s = probe_of(data).duration_s
    assert position(duration_s) == pytest.approx(len(samples), abs=position(0.1))


@pytest.mark.parametrize(("container", "codec"), [("ipod", "aac"), ("matroska", "flac"), ("ogg", "vorbis")])
def test_what_follows_a_hole_keeps_its_time(container, codec):
    clip = read(CLIP)
    data = encode_audio(clip, container, codec, rate=44100, layout="stereo")
    hole = len(data) // 4
    samples, notes = decode_all(data[:hole] + bytes(3000) + data[hole + 3000 :])
    assert len(samples) == pytest.approx(len(clip), abs=position(0.07))
    assert likeness(samples[-position(3) :], clip[-position(3) :], 0) > 0.9
    assert FILLED in notes


def without_every_tenth_packet(data: bytes, container: str) -> bytes:
    """Return the recording as a lossy network leaves it: what is missing are packets of 20 ms, far from each other."""
    thinned = io.BytesIO()
    with av.open(io.BytesIO(data)) as whole, av.open(thinned, "w", format=container) as out:
        stream = out.add_stream_from_template(whole.streams.audio[0])
        for number, packet in enumerate(whole.demux(audio=0)):
            if packet.dts is not None and number % 10 != 5:
                packet.stream = stream
                out.mux(packet)
    return thinned.getvalue()


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("container", ["matroska", "mp4"])
def test_many_lost_packets_make_no_word_early(container, *, live):
    clip = read(CLIP)
    thinned = without_every_tenth_packet(encode_audio(clip, container, "libopus", rate=48000), container)
    with recording(io.BytesIO(thinned), ANY, live=live) as heard:
        samples = np.concatenate(list(heard))
    assert len(samples) == pytest.approx(len(clip), abs=position(0.12))
    early = max(range(-30, 30), key=lambda lag: likeness(samples[-position(3) :], clip[-position(3) :], lag))
    assert abs(early) <= 10
    assert codes(heard.notes) == (FILLED,)


@pytest.mark.parametrize(("container", "codec"), [("mp3", "libmp3lame"), ("adts", "aac"), ("ipod", "aac")])
def test_broken_frames_are_left_out_and_noted(clip, container, codec):
    data = encode_audio(clip, container, codec)
    middle = len(data) // 2
    samples, notes = decode_all(data[:middle] + bytes(2000) + data[middle + 2000 :])
    assert len(samples) > len(clip) - position(2)
    assert SKIPPED in notes
    assert TRUNCATED not in notes


@pytest.mark.parametrize(
    ("container", "codec"),
    [
        ("wav", "pcm_s16le"),
        ("flac", "flac"),
        ("mp3", "libmp3lame"),
        ("matroska", "aac"),
        ("wv", "wavpack"),
        ("aiff", "pcm_s16be"),
        ("au", "pcm_s16be"),
        ("tta", "tta"),
        ("adts", "aac"),
    ],
)
def test_a_file_that_is_cut_off_gives_what_it_holds_and_says_so(container, codec):
    clip = read(CLIP)
    data = encode_audio(clip, container, codec)
    samples, notes = decode_all(data[: len(data) * 2 // 3])
    assert len(clip) // 3 < len(samples) < len(clip)
    assert notes == (TRUNCATED,)


def test_a_stream_that_was_piped_states_no_length_and_is_not_called_cut_off(clip):
    whole = encode_audio(clip, "wav", "pcm_s16le")
    for size in (b"\xff\xff\xff\xff", b"\x24\xf0\xff\x7f"):  # with which ffmpeg and sox say that the size is unknown
        piped = whole[:4] + size + whole[8:]
        samples, notes = decode_all(piped)
        assert (len(samples), notes) == (len(clip), ())


def test_each_kind_of_bad_file_has_its_own_error(clip):
    flac = encode_audio(clip, "flac", "flac")
    assert refusal(b"") is EmptyAudio
    assert refusal(b"This is a letter, renamed to a.mp3.\n" * 1000) is UndecodableAudio
    assert refusal(bytes(100_000)) is UndecodableAudio
    assert refusal(b"\x89PNG\r\n\x1a\n" + bytes(1000)) is UndecodableAudio
    assert refusal(b"%PDF-1.7\n" + bytes(range(256)) * 100) is UndecodableAudio
    assert refusal(flac[:20]) is InvalidAudio
    assert refusal(flac[:60]) is InvalidAudio
    assert refusal(flac[:42] + bytes(50_000)) is InvalidAudio
    assert refusal(encode_audio(clip, "ipod", "aac")[:40_000]) is InvalidAudio  # its index was at the end
    assert refusal(wav(b"")) is InvalidAudio
    assert refusal(film(1.0)) is NoAudioStream


@pytest.mark.parametrize(
    "text",
    [
        "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nhttp://127.0.0.1:{port}/a.ts\n#EXT-X-ENDLIST\n",
        "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio {port} RTP/AVP 0\r\n",
        "ffconcat version 1.0\nfile http://127.0.0.1:{port}/a.mp3\n",
        "<?xml version='1.0'?><MPD><BaseURL>http://127.0.0.1:{port}/</BaseURL></MPD>",
        "[Reference]\nRef1=http://127.0.0.1:{port}/a.asf\n",
        "RTSPtextrtsp://127.0.0.1:{port}/a\n",
        "<svg xmlns='http://www.w3.org/2000/svg'><image href='http://127.0.0.1:{port}/a.png'/></svg>",
        "1\n00:00:01,000 --> 00:00:02,000\nhello\n\n",
        ";FFMETADATA1\ntitle=x\n",
    ],
)
def test_a_playlist_is_refused_and_what_it_names_is_never_asked(text):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        attack = text.format(port=listener.getsockname()[1]).encode()
        assert refusal(attack) is UndecodableAudio
        named = io.BytesIO(attack)
        named.name = "list.m3u8"
        with pytest.raises(UndecodableAudio), recording(named, ANY):
            pass
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_decoding_stops_one_second_after_the_limit_whatever_the_header_says():
    silence = encode_audio(np.zeros(RATE * 100, np.float32), "flac", "flac")
    limits = DecodeLimits(longest_s=10)
    lying = bytearray(silence)
    lying[21:26] = bytes([lying[21] & 0xF0, 0, 0, 0x3E, 0x80])  # STREAMINFO: 16,000 samples in all
    for data in (silence, bytes(lying)):
        heard: list[Samples] = []
        with recording(io.BytesIO(data), limits) as audio, pytest.raises(AudioTooLong) as caught:
            heard.extend(audio)
        assert sum(map(len, heard)) <= 11 * RATE
        assert caught.value.limit_s == 10
        assert 11 <= caught.value.actual_s <= 12.1
    assert len(decode_all(silence, DecodeLimits(longest_s=99.5))[0]) == 100 * RATE


def test_more_channels_streams_or_rate_than_allowed_are_refused():
    assert refusal(wav(bytes(96_000), channels=16)) is InvalidAudio
    assert refusal(wav(bytes(96_000), rate=768_000)) is InvalidAudio
    assert refusal(wav(bytes(96_000), rate=1)) is InvalidAudio  # would grow 16,000-fold
    tracks = encode_audio(tone(1.0), "matroska", "pcm_s16le", film=True)
    assert refusal(tracks, DecodeLimits(max_streams=1)) is InvalidAudio


def test_the_probe_says_what_the_header_does(clip):
    flac = probe_of(encode_audio(clip, "flac", "flac", rate=44100, layout="stereo"))
    assert (flac.format, flac.codec, flac.rate, flac.channels) == ("flac", "flac", 44100, 2)
    assert flac.duration_s == pytest.approx(len(clip) / RATE, abs=0.001)
    assert flac.duration_stated
    assert probe_of(encode_audio(clip, "ipod", "aac")).format == "mp4"
    assert probe_of(encode_audio(clip, "mp3", "libmp3lame")).duration_stated
    adts = probe_of(encode_audio(clip, "adts", "aac"))
    assert adts.duration_s is not None
    assert not adts.duration_stated  # guessed from a bit rate, so it is no reason to refuse a file
    with_film = probe_of(encode_audio(clip, "matroska", "libopus", rate=48000, film=True))
    assert with_film.duration_s == pytest.approx(len(clip) / RATE, abs=0.1)
    assert not with_film.duration_stated


@pytest.mark.parametrize("milliseconds", [-3.6e9, -0.0, float("nan"), float("inf"), float("-inf")])
def test_a_length_that_no_recording_has_is_no_length(clip, milliseconds):
    """A length below 0 would be given back to the account's month."""
    honest = encode_audio(clip, "matroska", "flac")
    at = honest.index(b"\x44\x89\x88") + 3  # the element Duration, of 8 bytes
    probe = probe_of(honest[:at] + struct.pack(">d", milliseconds) + honest[at + 8 :])
    assert (probe.duration_s, probe.duration_stated) == (None, False)
    assert probe_of(honest).duration_stated


def test_a_file_without_a_frame_is_given_up_after_a_bounded_number_of_packets(clip):
    with pytest.raises(InvalidAudio, match="first 1000 packets"):
        decode_all(one_byte_packets(2000))
    waiting = DecodeLimits(max_packets_before_frame=2)
    assert len(decode_all(encode_audio(clip, "flac", "flac"), waiting)[0]) == len(clip)
    assert refusal(one_byte_packets(2000), waiting) is InvalidAudio


def test_a_file_that_points_far_beyond_its_end_is_read_as_far_as_it_goes(tmp_path):
    """The operating system refuses such a seek. That must not raise an exception inside FFmpeg's reading."""
    data = encode_audio(tone(1.0), "w64", "pcm_s16le")
    start = data.index(b"data")
    path = tmp_path / "sound"
    path.write_bytes(data[:start] + b"junk" + data[start + 4 : start + 16] + struct.pack("<q", 1 << 62) + data[start:])
    with path.open("rb", buffering=0) as file, recording(file, ANY) as heard:
        assert sum(map(len, heard)) == RATE


def test_tags_in_any_bytes_do_not_disturb():
    with io.BytesIO() as file:
        with wave.open(file, "wb") as out:
            out.setnchannels(1)
            out.setsampwidth(2)
            out.setframerate(RATE)
            out.writeframes(bytes(RATE))
        data = file.getvalue()
    tag = b"LIST" + struct.pack("<I", 16) + b"INFOINAM" + struct.pack("<I", 4) + b"\xff\xfe\x80\x81"
    tagged = data[:12] + tag + data[12:]
    assert len(decode_all(tagged)[0]) == RATE // 2

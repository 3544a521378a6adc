"""Tests of headers.py: any header or file name gives a value or the one named error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.http.headers import (
    ByteRange,
    Preference,
    RangeNotSatisfiable,
    attachment,
    byte_range,
    clean_filename,
    idempotency_key,
    none_match,
    preference,
    range_still_holds,
)
from server.model.errors import Refused

LATIN = st.text(st.characters(max_codepoint=255), max_size=60)  # what a header can hold
HEADERISH = st.text(st.sampled_from('abytes=wit-0123456789,;"\\ \t*W/'), max_size=30)
HEADER = LATIN | HEADERISH


# Prefer


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], Preference()),
        ([""], Preference()),
        (["respond-async"], Preference(respond_async=True)),
        (["Respond-Async"], Preference(respond_async=True)),
        (["wait=10"], Preference(wait_s=10)),
        (['wait="10"'], Preference(wait_s=10)),
        (["WAIT = 10"], Preference(wait_s=10)),
        (["respond-async, wait=10"], Preference(respond_async=True, wait_s=10)),
        (["respond-async", "wait=0"], Preference(respond_async=True, wait_s=0)),
        (["wait=10; foo=bar, respond-async;x"], Preference(respond_async=True, wait_s=10)),
        (["wait=1, wait=2", "wait=3"], Preference(wait_s=1)),
        (['return=minimal, x="a, wait=7", wait=8'], Preference(wait_s=8)),
        ([",,wait=5,,"], Preference(wait_s=5)),
        (["wait"], Preference()),
        (["wait="], Preference()),
        (["wait=soon"], Preference()),
        (["wait=-1"], Preference()),
        (["wait=1.5"], Preference()),
        (["wait=9999999999"], Preference()),
        (["wait=\xb2"], Preference()),
        (["respond-async=x y"], Preference()),
        (["handling=lenient"], Preference()),
    ],
)
def test_preferences_of_the_rfc(headers, expected):
    assert preference(headers) == expected


@given(st.lists(HEADER, max_size=3))
def test_any_prefer_header_is_understood_or_ignored(headers):
    wait_s = preference(headers).wait_s
    assert wait_s is None or 0 <= wait_s < 10**9


@given(st.integers(0, 999_999_999), HEADER.filter(lambda text: "w" not in text.lower() and '"' not in text))
def test_what_cannot_be_read_hides_nothing_behind_it(seconds, garbage):
    assert preference([garbage, f"wait={seconds}"]).wait_s == seconds


def test_a_header_made_to_be_slow_is_read_at_once():
    assert preference(["wait=" + " " * 60_000 + "\x01", 'x="' + "\\a" * 30_000]) == Preference()


# Idempotency-Key


@pytest.mark.parametrize(
    ("header", "key"),
    [
        ("8e03978e-40d5-43dd-bc93-6894a57f9324", "8e03978e-40d5-43dd-bc93-6894a57f9324"),
        ('"8e03978e-40d5-43dd-bc93-6894a57f9324"', "8e03978e-40d5-43dd-bc93-6894a57f9324"),
        ("  a b\t", "a b"),
        (r'"a \"b\" \\c"', r'a "b" \c'),
        (r"a\b", r"a\b"),
        ('a"b', 'a"b'),
        ("x" * 255, "x" * 255),
        ('"' + "x" * 255 + '"', "x" * 255),
    ],
)
def test_a_key_is_the_same_bare_and_quoted(header, key):
    assert idempotency_key(header) == key


@pytest.mark.parametrize(
    "header", ["", " ", '""', '"', '"a', '"a"b', r'"\a"', '"a";b=1', "x" * 256, "é", "a\nb", "\x7f"]
)
def test_what_is_no_key_is_refused(header):
    with pytest.raises(Refused, match="invalid_idempotency_key"):
        idempotency_key(header)


@given(HEADER)
def test_any_text_is_a_printable_key_or_refused(header):
    try:
        key = idempotency_key(header)
    except Refused:
        return
    assert 1 <= len(key) <= 255
    assert key.isascii()
    assert key.isprintable()


# Range


@pytest.mark.parametrize(
    ("header", "start", "stop"),
    [
        ("bytes=0-9", 0, 10),
        ("bytes=5-", 5, 100),
        ("bytes=-10", 90, 100),
        ("bytes=-1000", 0, 100),
        ("bytes=99-99", 99, 100),
        ("bytes=0-1000", 0, 100),
        ("bytes=0-" + "9" * 900, 0, 100),
        ("Bytes=0-0", 0, 1),
        ("bytes= 0-0 ,", 0, 1),
    ],
)
def test_a_range_inside_is_cut_out(header, start, stop):
    assert byte_range(header, 100) == ByteRange(start, stop, 100)


@pytest.mark.parametrize(
    "header",
    ["", "items=0-1", "bytes", "bytes=", "bytes=-", "bytes=a-b", "bytes=2-1", "bytes=0-1,5-6", "bytes=1", "bytes=+1-2",
     "bytes=0-9" + "9" * 999, "bytes 0-1", "bytes=\xb2-"],
)  # fmt: skip
def test_another_unit_several_ranges_or_nonsense_are_ignored(header):
    assert byte_range(header, 100) is None


@pytest.mark.parametrize("header", ["bytes=100-", "bytes=100-200", "bytes=99999999-", "bytes=-0"])
def test_a_range_behind_the_end_cannot_be_satisfied(header):
    with pytest.raises(RangeNotSatisfiable) as caught:
        byte_range(header, 100)
    assert caught.value.content_range == "bytes */100"


@given(HEADER, st.integers(0, 1000))
def test_any_range_header_gives_a_range_inside_nothing_or_416(header, size):
    try:
        part = byte_range(header, size)
    except RangeNotSatisfiable:
        assert size > 0
        return
    assert part is None or 0 <= part.start < part.stop <= size


# Validators


@pytest.mark.parametrize(
    ("headers", "known"),
    [
        ([], False),
        ([""], False),
        (["*"], True),
        (['"abc"'], True),
        (['W/"abc"'], True),
        (['"x", W/"abc"'], True),
        (['"x"', '"abc"'], True),
        (['"a,b","abc"'], True),
        (['"abcd"'], False),
        (["abc"], False),
        (['w/"ab"'], False),
        (['"x, "abc'], False),
        (['"*"'], False),
    ],
)
@pytest.mark.parametrize("etag", ['"abc"', 'W/"abc"'])
def test_if_none_match_compares_weakly(headers, known, etag):
    assert none_match(headers, etag) is known


@pytest.mark.parametrize(
    ("if_range", "etag", "holds"),
    [
        (None, '"abc"', True),
        ('"abc"', '"abc"', True),
        (' "abc"', '"abc"', True),
        ('"abd"', '"abc"', False),
        ('W/"abc"', '"abc"', False),
        ('W/"abc"', 'W/"abc"', False),
        ("Fri, 20 Nov 2026 11:30:00 GMT", '"abc"', False),
        ("", '"abc"', False),
    ],
)
def test_a_range_goes_on_only_with_the_very_same_bytes(if_range, etag, holds):
    assert range_still_holds(if_range, etag) is holds


# File names


@pytest.mark.parametrize(
    ("name", "clean"),
    [
        ("a.mp3", "a.mp3"),
        ("Gespräch 会議.m4a", "Gespräch 会議.m4a"),
        ("/etc/passwd", "passwd"),
        ("../../x.wav", "x.wav"),
        (r"C:\Users\me\x.wav", "x.wav"),
        ("a\x00b\r\nc.wav", "abc.wav"),
        ("\u202egpj.exe", "gpj.exe"),
        ("  a.mp3 ", "a.mp3"),
        ("\ud800a", "a"),
        (None, None),
        ("", None),
        (".", None),
        ("..", None),
        ("dir/", None),
        (" \x00 ", None),
        ("x" * 300, "x" * 255),
        ("é" * 200, "é" * 127),
    ],
)
def test_a_file_name_is_a_name_and_nothing_else(name, clean):
    assert clean_filename(name) == clean


@pytest.mark.parametrize(
    ("recording", "header"),
    [
        ("Interview 1.mp3", 'filename="Interview 1.srt"'),
        ("Übung.wav", "filename=\"Ubung.srt\"; filename*=UTF-8''%C3%9Cbung.srt"),
        ("会議.m4a", "filename=\"job_1.srt\"; filename*=UTF-8''%E4%BC%9A%E8%AD%B0.srt"),
        ("Teil 3. Folge", 'filename="Teil 3. Folge.srt"'),
        ("..\\../.hidden.wav", 'filename="hidden.srt"'),
        ('a"b:c%41.wav', 'filename="a_b_c_41.srt"'),
        ("a\r\nX: y.wav", 'filename="aX_ y.srt"'),
        ("x" * 300, f'filename="{"x" * 251}.srt"'),
        ("...", 'filename="job_1.srt"'),
        (None, 'filename="job_1.srt"'),
    ],
)
def test_a_download_is_called_like_its_recording(recording, header):
    assert attachment(recording, "srt", otherwise="job_1") == f"attachment; {header}"


@given(st.text(st.characters(), max_size=400))
def test_any_file_name_is_clean_or_none(name):
    clean = clean_filename(name)
    assert clean is None or (
        0 < len(clean.encode()) <= 255
        and not set(clean) & set("/\\\0\r\n\x85\u2028")
        and clean not in (".", "..")
        and clean_filename(clean) == clean
    )

"""Tests of Server-Sent Events: what a client that follows the HTML standard reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.http.streamed import KEEP_ALIVE, event, last_event_id, retry
from server.model.errors import Refused


def read(stream: bytes) -> list[tuple[str, str, str]]:
    """Return (type, data, last event id) of every event, parsed as in section 9.2.6 of the HTML standard."""
    events, kind, data, last_id = [], "", [], ""
    for line in stream.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n")[:-1]:
        if not line:
            if data:
                events.append((kind or "message", "\n".join(data), last_id))
            kind, data = "", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            kind = value
        elif field == "data":
            data.append(value)
        elif field == "id" and "\0" not in value:
            last_id = value
    return events


def test_to_the_byte():
    assert event("word", b'{"seq":7}', seq=7) == b'id: 7\nevent: word\ndata: {"seq":7}\n\n'
    assert event("partial", b"{}") == b"event: partial\ndata: {}\n\n"
    assert event(None, b"{}") == b"data: {}\n\n"
    assert retry(3000) == b"retry: 3000\n\n"
    assert KEEP_ALIVE == b": keep-alive\n\n"


@given(st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.none() | st.integers(1, 10**9))))
def test_any_data_is_read_back_as_one_event_and_moves_the_resume_point_only_with_a_number(sent):
    stream = b"".join(event("word", data.encode(), seq=seq) + KEEP_ALIVE for data, seq in sent)
    expected, last_id = [], ""
    for data, seq in sent:
        last_id = last_id if seq is None else str(seq)
        expected.append(("word", data.replace("\r\n", "\n").replace("\r", "\n"), last_id))
    assert read(stream) == expected


@pytest.mark.parametrize(
    ("header", "query", "after"),
    [(None, None, 0), ("", None, 0), ("7", None, 7), (None, "7", 7), ("9", "7", 9), ("", "7", 7), (" 7 ", None, 7),
     ("0", None, 0), ("007", None, 7)],
)  # fmt: skip
def test_the_resume_point_comes_from_the_header_then_the_query(header, query, after):
    assert last_event_id(header, query) == after


@pytest.mark.parametrize("text", ["x", "-1", "1.0", "1e3", "\u0667", "1 2", "9" * 19, "9" * 5000])
def test_what_is_no_event_id_is_refused(text):
    with pytest.raises(Refused, match="invalid_last_event_id"):
        last_event_id(text)
    with pytest.raises(Refused, match="invalid_last_event_id"):
        last_event_id(None, text)


@given(st.none() | st.text(), st.none() | st.text())
def test_any_text_is_an_event_id_or_refused(header, query):
    try:
        assert last_event_id(header, query) >= 0
    except Refused:
        assert (header or query or "").strip() != ""

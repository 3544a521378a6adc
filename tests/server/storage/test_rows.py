"""Tests of rows.py: stored members become the same values again, also beside nodes that store more of them."""

import orjson
import pytest

from pipeline.documents.cues import SubtitleShape
from server.model.orders import LiveOptions, Order
from server.storage.sql.rows import order_of, text_of

ORDERS = [
    Order(),
    Order(output_formats=("srt", "vtt"), keywords=("Scribewire",), live=LiveOptions(channels=2)),
    Order(task="translate", language="de"),
    Order(subtitles=SubtitleShape(max_lines=1), callback={"dialect": "toy", "loud": True}),
]


@pytest.mark.parametrize("order", ORDERS)
def test_an_order_is_read_as_it_was_stored(order):
    assert order_of(text_of(order)) == order


@pytest.mark.parametrize("order", ORDERS)
def test_what_a_newer_node_stores_besides_is_left_out(order):
    stored = orjson.loads(text_of(order)) | {"later": 1}
    for inner in ("live", "subtitles"):
        if stored[inner] is not None:
            stored[inner]["later"] = ["a list"]
    assert order_of(orjson.dumps(stored).decode()) == order


def test_an_order_of_an_older_program_has_the_usual_values():
    stored = orjson.loads(text_of(Order()))
    del stored["subtitles"], stored["callback"], stored["task"]
    assert order_of(orjson.dumps(stored).decode()) == Order()


def test_a_callback_that_names_no_dialect_was_stored_when_there_was_one():
    stored = orjson.loads(text_of(Order())) | {"callback": {"utterances": True}}
    assert order_of(orjson.dumps(stored).decode()).callback == {"dialect": "deepgram", "utterances": True}

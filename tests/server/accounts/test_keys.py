"""Tests of keys.py: an API key with a typing error is recognised without the database."""

import base64
import hashlib
import zlib

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from server.accounts.keys import (
    KEY_CHANCE_BYTES,
    MalformedKey,
    digest,
    display_prefix,
    environment_of,
    make_key,
    make_webhook_secret,
)

CHANCE = st.binary(min_size=KEY_CHANCE_BYTES, max_size=KEY_CHANCE_BYTES)
ENVIRONMENT = st.sampled_from(["production", "sandbox"])
KEY = make_key("production", bytes(range(32)))


def test_a_key_of_known_chance():
    """Computed without the code: bytes 0..31 as a number, its 30 lowest base62 digits, and the CRC-32 of the text."""
    number, digits = int.from_bytes(bytes(range(32))), ""
    alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    for _ in range(30):
        digits, number = alphabet[number % 62] + digits, number // 62
    number, check = zlib.crc32(f"sw_live_{digits}".encode()), ""
    for _ in range(6):
        check, number = alphabet[number % 62] + check, number // 62
    made = f"sw_live_{digits}{check}"
    assert made == KEY


@given(ENVIRONMENT, CHANCE)
def test_a_key_tells_its_environment(environment, chance):
    key = make_key(environment, chance)
    assert environment_of(key) == environment
    assert key.startswith({"production": "sw_live_", "sandbox": "sw_test_"}[environment])


@given(CHANCE, st.integers(0, 43), st.characters(codec="ascii"))
def test_one_wrong_character_is_told(chance, place, character):
    key = make_key("production", chance)
    assume(key[place] != character)
    with pytest.raises(MalformedKey):
        environment_of(key[:place] + character + key[place + 1 :])


@given(st.text())
def test_any_other_text_is_a_malformed_key(text):
    with pytest.raises(MalformedKey):
        environment_of(text)


@pytest.mark.parametrize("text", ["", KEY[:-1], KEY + "0", KEY + "\n", " " + KEY, "sk_live_" + KEY[8:], KEY.upper()])
def test_a_near_miss_is_a_malformed_key(text):
    with pytest.raises(MalformedKey):
        environment_of(text)


def test_the_error_never_quotes_the_key():
    with pytest.raises(MalformedKey) as caught:
        environment_of(KEY[:-1] + "_")
    assert KEY[8:20] not in str(caught.value)


def test_what_is_stored_and_shown():
    assert digest(KEY) == hashlib.sha256(KEY.encode()).digest()
    assert display_prefix(KEY) == KEY[:12]


@given(CHANCE)
def test_a_webhook_secret_is_32_bytes_in_base64(chance):
    secret = make_webhook_secret(chance)
    assert secret.startswith("whsec_")
    assert base64.b64decode(secret[6:], validate=True) == chance


@pytest.mark.parametrize("length", [0, 16, 31, 33])
def test_less_or_more_chance_than_needed_is_refused(length):
    with pytest.raises(ValueError, match="32 random bytes"):
        make_key("production", bytes(length))
    with pytest.raises(ValueError, match="32 random bytes"):
        make_webhook_secret(bytes(length))

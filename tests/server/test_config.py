"""Tests of config.py: what each variable takes, and the sentence that refuses an invalid one."""

import re
from dataclasses import fields
from ipaddress import ip_network

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.config import PREFIX, VARIABLES, Config, ConfigError


def config(**variables: str) -> Config:
    return Config.from_env({PREFIX + name: value for name, value in variables.items()})


def refusal(**variables: str) -> str:
    with pytest.raises(ConfigError) as caught:
        config(**variables)
    return str(caught.value)


def outcome(**variables: str) -> Config | str:
    """Return the settings, or the sentence that refuses them."""
    try:
        return config(**variables)
    except ConfigError as error:
        return str(error)


def test_without_variables_the_server_is_for_this_machine_alone_and_calls_no_private_address():
    plain = config()
    assert (plain.host, plain.port, plain.public_base_url) == ("127.0.0.1", 8000, None)
    assert (plain.allow_http_sources, plain.egress_allow_cidrs, plain.trusted_proxies) == (False, (), ())
    assert (plain.database_url, plain.translation_url, plain.signup) == (None, None, "open")


@pytest.mark.parametrize("row", VARIABLES, ids=lambda row: row.name)
def test_each_variable_has_a_meaning_of_one_line_that_fits_into_a_table(row):
    assert re.fullmatch(r"[^\s|](?:[^|\n]*[^\s|.])?", row.meaning)


def test_only_variables_with_our_prefix_are_read():
    assert config() == Config.from_env({"PATH": "/bin", "WHISPER_MODEL": "of somebody else", "PORT": "1"})
    assert config() != config(PORT="1")


@pytest.mark.parametrize(
    ("name", "value", "takes"),
    [
        ("PORT", "65536", "a whole number from 0 to 65535"),
        ("PORT", "-1", "a whole number"),
        ("PORT", "\uff18000", "a whole number"),
        ("MODEL_THREADS", "0", "'auto' or a whole number from 1"),
        ("ENGINE", "kaldi", "one of auto, whisper, scripted"),
        ("SIGNUP", "maybe", "one of open, token, off"),
        ("LATENCY", "fast", "one of low, balanced, accurate"),
        ("ALLOW_HTTP_SOURCES", "perhaps", "1 or 0"),
        ("HOST", "  ", "a non-empty text"),
        ("EGRESS_ALLOW_CIDRS", "10.0.0.0/8,nonsense", "a comma-separated list of networks"),
        ("CORS_ORIGINS", "app.example.org", "* or a comma-separated list of origins"),
        ("CORS_ORIGINS", "https://app.example.org/page", "* or a comma-separated list of origins"),
        ("EGRESS_ALLOW_CIDRS", "10.0.0.1/8", "a comma-separated list of networks"),
        ("LIMITS_FILE", "/nowhere/limits.toml", "the path of an existing file"),
        ("PUBLIC_BASE_URL", "speech.example.org", "an address such as https://"),
        ("PUBLIC_BASE_URL", "https://[::1", "an address such as https://"),
        ("PUBLIC_BASE_URL", "https://x.org:port", "an address such as https://"),
        ("PUBLIC_BASE_URL", "https://u:p@x.org", "an address such as https://"),
        ("PUBLIC_BASE_URL", "https://x.org/?a=b", "an address such as https://"),
        ("LOG_LEVEL", "loud", "one of debug, info, warning, error"),
    ],
)
def test_a_bad_value_is_one_sentence_with_name_value_and_what_is_taken(name, value, takes):
    message = refusal(**{name: value})
    assert message.startswith(f"{PREFIX}{name} must be {takes}")
    assert repr(value) in message
    assert "\n" not in message


def test_values_are_read_as_people_write_them():
    read = config(
        ENGINE="Whisper", ALLOW_HTTP_SOURCES="TRUE", CORS_ORIGINS=" https://a.test/ ,https://b.test", PORT="0"
    )
    assert (read.engine, read.allow_http_sources, read.port) == ("whisper", True, 0)
    assert read.cors_origins == ("https://a.test", "https://b.test")
    assert config(CORS_ORIGINS="null, *, http://[::1]:80, app://x").cors_origins == (
        "null",
        "*",
        "http://[::1]:80",
        "app://x",
    )
    assert config(TRUSTED_PROXIES="10.0.0.0/8, ::1/128").trusted_proxies == (
        ip_network("10.0.0.0/8"),
        ip_network("::1/128"),
    )
    assert config(PUBLIC_BASE_URL="https://x.org/speech/").public_base_url == "https://x.org/speech"


def test_beyond_loopback_the_public_address_must_be_known_and_https():
    assert "PUBLIC_BASE_URL must be set" in refusal(HOST="0.0.0.0")
    assert "must be https" in refusal(HOST="0.0.0.0", PUBLIC_BASE_URL="http://speech.example.org")
    assert "must be https" in refusal(PUBLIC_BASE_URL="http://speech.example.org")
    assert config(HOST="0.0.0.0", PUBLIC_BASE_URL="https://speech.example.org").host == "0.0.0.0"
    assert config(HOST="0.0.0.0", ALLOW_INSECURE_HTTP="1").public_base_url is None
    assert config(PUBLIC_BASE_URL="http://localhost:9000").public_base_url == "http://localhost:9000"


def test_sign_up_by_token_needs_the_token():
    assert "SIGNUP_TOKEN must be set" in refusal(SIGNUP="token")
    assert config(SIGNUP="token", SIGNUP_TOKEN="s3cret").signup_token == "s3cret"


@pytest.mark.parametrize(
    ("wrong", "near"),
    [("PROT", "PORT"), ("WHISPER_MODLE", "WHISPER_MODEL"), ("DATADIR", "DATA_DIR"), ("Port", "PORT"), ("", "")],
)
def test_a_misspelled_variable_is_an_error_that_names_the_nearest(wrong, near):
    said = refusal(**{wrong: "1"})
    assert said.startswith(f"{PREFIX}{wrong} is no setting. Did you mean {PREFIX}{near}")
    assert said.endswith("?")


def test_variables_of_scripts_are_no_misspelled_settings():
    assert config(CUDA="1", CLUSTER="1", CORPORA="/tmp", PORT="1").port == 1


@settings(max_examples=150)
@given(st.sampled_from([row.name for row in VARIABLES]), st.text(max_size=40))
def test_any_text_sets_its_variable_alone_or_is_refused_with_its_name(name, value):
    taken, plain = outcome(**{name: value}), config()
    if isinstance(taken, str):
        assert PREFIX + name in taken
    else:
        changed = {field.name for field in fields(Config) if getattr(taken, field.name) != getattr(plain, field.name)}
        assert changed <= {name.lower()}

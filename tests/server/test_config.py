"""Tests of config.py: what each variable takes, and the sentence that refuses an invalid one."""

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


def test_every_variable_has_a_field_a_default_that_it_takes_and_a_meaning():
    assert len(VARIABLES) == len(fields(Config))
    assert all(row.meaning and "\n" not in row.meaning for row in VARIABLES)
    assert config() == Config.from_env({"PATH": "/bin", "WHISPER_MODEL": "of somebody else"})


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
def test_any_text_is_taken_or_refused_with_the_variables_name(name, value):
    message = PREFIX + name
    try:
        config(**{name: value})
    except ConfigError as error:
        message = str(error)
    assert PREFIX + name in message

"""Tests of signed.py: the server accepts what it has signed, and nothing else."""

import base64
import hashlib
import hmac
from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.accounts.signed import Scope, check_link, check_token, link_query, make_cursor, make_token, read_cursor
from server.model.accounts import SigningKeys
from server.model.errors import Refused

OLD = SigningKeys({"1": b"first secret"}, "1")
KEYS = SigningKeys({"1": b"first secret", "2": b"second secret"}, "2")
JOB = "job_01JD4W2M8Q7Z5K3N9V6B1XTRGH"
PATH = f"/v1/jobs/{JOB}/outputs/srt"
NOW = 1_795_174_200
ANY_TEXT = st.text(st.characters())  # with lone surrogates


def check(token: str, *, keys: SigningKeys = KEYS, job_id: str = JOB, scope=Scope.EVENTS, now_s: float = NOW) -> None:
    check_token(keys, token, job_id=job_id, scope=scope, now_s=now_s)


def token(**changes) -> str:
    return make_token(KEYS, **{"job_id": JOB, "scope": Scope.EVENTS, "expires_s": NOW + 600, **changes})


def link(**changes) -> dict[str, str]:
    query = parse_qs(link_query(KEYS, PATH, **{"expires_s": NOW + 3600, **changes}), strict_parsing=True)
    return {name: value for name, (value,) in query.items()}


# Stream tokens


@pytest.mark.parametrize("scope", Scope)
def test_a_token_is_believed_for_its_job_and_scope_until_it_expires(scope):
    made = token(scope=scope)
    assert made.startswith("st_")
    check(made, scope=scope)
    check(made, scope=scope, now_s=NOW + 599.999)
    with pytest.raises(Refused, match="has expired"):
        check(made, scope=scope, now_s=NOW + 600)


def test_an_older_signing_key_is_believed_while_it_is_kept():
    made = make_token(OLD, job_id=JOB, scope=Scope.EVENTS, expires_s=NOW + 9)
    check(made)
    with pytest.raises(Refused, match="This is no"):
        check(made, keys=SigningKeys({"2": b"second secret"}, "2"))


@given(st.data())
def test_one_changed_character_makes_a_token_malformed(data):
    made = token()
    place = data.draw(st.integers(0, len(made) - 1))
    character = data.draw(st.characters(exclude_characters=made[place]))
    with pytest.raises(Refused, match="This is no"):
        check(made[:place] + character + made[place + 1 :])


@given(ANY_TEXT, st.sampled_from(["", "st_"]))
def test_any_other_text_is_a_malformed_token(text, prefix):
    with pytest.raises(Refused, match="This is no"):
        check(prefix + text)


@pytest.mark.parametrize("ending", ["=", "==", "A", "\n", " ", "+", "/", "é"])
def test_a_token_has_one_spelling(ending):
    with pytest.raises(Refused, match="This is no"):
        check(token() + ending)


# Download links


def test_a_link_of_known_content():
    mac = hmac.new(b"second secret", f"v1\nGET\n{PATH}\n{NOW + 3600}".encode(), hashlib.sha256).digest()
    assert link() == {"exp": str(NOW + 3600), "kid": "2", "sig": base64.urlsafe_b64encode(mac).decode().rstrip("=")}


def test_a_link_opens_its_path_until_it_expires():
    check_link(KEYS, PATH, **link(), now_s=NOW + 3599.9)
    with pytest.raises(Refused, match="has expired"):
        check_link(KEYS, PATH, **link(), now_s=NOW + 3600)


def test_a_link_opens_no_other_path():
    for path in (PATH.replace("srt", "vtt"), PATH + "x", PATH.upper(), "", PATH + "\n1"):
        with pytest.raises(Refused, match="invalid_signature"):
            check_link(KEYS, path, **link(), now_s=NOW)


@pytest.mark.parametrize(
    "change",
    [
        {"exp": str(NOW + 3601)},
        {"exp": f"0{NOW + 3600}"},
        {"exp": f"{NOW + 3600} "},
        {"exp": ""},
        {"kid": "1"},
        {"kid": "3"},
        {"kid": ""},
        {"sig": ""},
        {"sig": link()["sig"] + "="},
        {"sig": link()["sig"][:-1]},
        {"sig": link()["sig"].swapcase()},
    ],
)
def test_a_changed_link_opens_nothing(change):
    with pytest.raises(Refused, match="invalid_signature"):
        check_link(KEYS, PATH, **{**link(), **change}, now_s=NOW)


def test_a_changed_link_is_bad_even_when_it_would_be_expired():
    with pytest.raises(Refused, match="invalid_signature"):
        check_link(KEYS, PATH, **{**link(), "exp": "1"}, now_s=NOW)


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT | st.sampled_from(["1", "2"]), ANY_TEXT)
def test_any_other_text_is_a_bad_signature(path, exp, kid, sig):
    with pytest.raises(Refused, match="invalid_signature"):
        check_link(KEYS, path, exp=exp, kid=kid, sig=sig, now_s=NOW)


def test_a_signed_time_that_is_none_is_a_bad_signature():
    """Even with a valid signature the expiry must be plain digits."""
    exp = "soon"
    mac = hmac.new(b"second secret", f"v1\nGET\n{PATH}\n{exp}".encode(), hashlib.sha256).digest()
    with pytest.raises(Refused, match="invalid_signature"):
        check_link(KEYS, PATH, exp=exp, kid="2", sig=base64.urlsafe_b64encode(mac).decode().rstrip("="), now_s=0)


# Cursors


@given(st.integers(0, 2**53))
def test_a_cursor_gives_back_its_row_to_its_owner(created_at):
    cursor = make_cursor(KEYS, owner="acct_1 production", created_at=created_at, job_id=JOB)
    assert read_cursor(KEYS, cursor, owner="acct_1 production") == (created_at, JOB)


@given(ANY_TEXT)
def test_any_other_text_is_an_invalid_cursor(text):
    with pytest.raises(Refused, match="invalid_cursor"):
        read_cursor(KEYS, text, owner="acct_1")


# None passes for another


def test_a_cursor_is_no_token_and_a_token_no_cursor():
    cursor = make_cursor(KEYS, owner="acct_1", created_at=NOW, job_id=JOB)
    with pytest.raises(Refused, match="This is no"):
        check("st_" + cursor)
    with pytest.raises(Refused, match="invalid_cursor"):
        read_cursor(KEYS, token().removeprefix("st_"), owner="acct_1")


# The key ring


@pytest.mark.parametrize(
    ("secrets", "current"), [({}, "1"), ({"1": b"x"}, "2"), ({"a\n": b"x"}, "a\n"), ({"é": b""}, "é")]
)
def test_a_key_ring_without_its_current_key_or_with_a_strange_id_is_refused(secrets, current):
    with pytest.raises(ValueError, match="a key ring needs"):
        SigningKeys(secrets, current)


def test_secrets_are_not_printed():
    assert "secret" not in repr(KEYS)

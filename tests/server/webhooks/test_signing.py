"""Signatures of webhooks: the example of the Standard Webhooks standard, and its own library."""

import base64
from datetime import UTC, datetime

import pytest
import standardwebhooks
from hypothesis import given
from hypothesis import strategies as st

from server.accounts.keys import make_webhook_secret
from server.webhooks.sender import signed_headers

# The example of the Standard Webhooks specification.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
MESSAGE_ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
TIMESTAMP = 1614265330
BODY = b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

HEADERS = {"webhook-id": MESSAGE_ID, "webhook-timestamp": str(TIMESTAMP), "webhook-signature": SIGNATURE}
SECRETS = st.binary(min_size=32, max_size=32).map(make_webhook_secret)


def sign(*secrets: str, body: bytes = BODY, timestamp_s: int = TIMESTAMP) -> dict[str, str]:
    return signed_headers(secrets, message_id=MESSAGE_ID, timestamp_s=timestamp_s, body=body)


def test_the_known_answer_of_the_standard():
    assert sign(SECRET) == HEADERS


@given(SECRETS, st.binary().map(base64.b64encode))
def test_the_standards_own_library_verifies_ours(secret, body):
    now = int(datetime.now(UTC).timestamp())  # the library uses the real time
    headers = sign(secret, body=b'"%s"' % body, timestamp_s=now)
    assert standardwebhooks.Webhook(secret).verify(b'"%s"' % body, headers) == body.decode()


@given(SECRETS, SECRETS, st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 2**32))
def test_while_a_secret_is_replaced_both_sign_as_the_standards_library_does(new, old, text, timestamp_s):
    headers = sign(new, old, body=text.encode(), timestamp_s=timestamp_s)
    at = datetime.fromtimestamp(timestamp_s, UTC)
    theirs = [standardwebhooks.Webhook(secret).sign(MESSAGE_ID, at, text) for secret in (new, old)]
    assert headers["webhook-signature"].split(" ") == theirs


def test_without_a_secret_nothing_is_signed():
    with pytest.raises(ValueError, match="at least one secret"):
        sign()


@pytest.mark.parametrize("secret", ["whsec_!", "whsec_abc", "whsec_é"])
def test_a_secret_that_is_none_is_refused_and_not_quoted(secret):
    with pytest.raises(ValueError, match="a webhook secret is") as caught:
        sign(secret)
    assert secret not in str(caught.value)

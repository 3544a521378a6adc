"""Tests of signing.py: the example of the Standard Webhooks standard, its own library, and forgeries."""

import base64
from datetime import UTC, datetime

import pytest
import standardwebhooks
from hypothesis import assume, given
from hypothesis import strategies as st

from server.accounts.keys import make_webhook_secret
from server.webhooks.signing import TOLERANCE_S, BadWebhookSignature, signed_headers, verify

# The example of the Standard Webhooks specification.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
MESSAGE_ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
TIMESTAMP = 1614265330
BODY = b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

HEADERS = {
    "webhook-id": MESSAGE_ID,
    "webhook-timestamp": str(TIMESTAMP),
    "webhook-signature": SIGNATURE,
}
SECRETS = st.binary(min_size=32, max_size=32).map(make_webhook_secret)
ANY_TEXT = st.text(st.characters())


def signed(*secrets: str, body: bytes = BODY, timestamp_s: int = TIMESTAMP) -> dict[str, str]:
    return signed_headers(secrets, message_id=MESSAGE_ID, timestamp_s=timestamp_s, body=body)


def test_the_known_answer_of_the_standard():
    assert signed(SECRET) == HEADERS
    verify(SECRET, HEADERS, BODY, now_s=TIMESTAMP)


@given(SECRETS, st.binary().map(base64.b64encode))
def test_the_standards_own_library_verifies_ours(secret, body):
    now = int(datetime.now(UTC).timestamp())  # the library uses the real time
    headers = signed(secret, body=b'"%s"' % body, timestamp_s=now)
    assert standardwebhooks.Webhook(secret).verify(b'"%s"' % body, headers) == body.decode()


@given(SECRETS, st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 2**32))
def test_we_verify_what_the_standards_library_signs(secret, text, timestamp_s):
    at = datetime.fromtimestamp(timestamp_s, UTC)
    signature = standardwebhooks.Webhook(secret).sign(MESSAGE_ID, at, text)
    headers = {**HEADERS, "webhook-timestamp": str(timestamp_s), "webhook-signature": signature}
    verify(secret, headers, text.encode(), now_s=timestamp_s)


@given(SECRETS, SECRETS, st.binary())
def test_while_a_secret_is_replaced_both_verify(new, old, body):
    headers = signed(new, old, body=body)
    assert len(headers["webhook-signature"].split(" ")) == 2
    verify(new, headers, body, now_s=TIMESTAMP)
    verify(old, headers, body, now_s=TIMESTAMP)


@given(SECRETS, SECRETS)
def test_another_secret_does_not_verify(one, other):
    assume(one != other)
    with pytest.raises(BadWebhookSignature):
        verify(other, signed(one), BODY, now_s=TIMESTAMP)


@given(st.binary())
def test_another_body_does_not_verify(body):
    assume(body != BODY)
    with pytest.raises(BadWebhookSignature):
        verify(SECRET, HEADERS, body, now_s=TIMESTAMP)


@pytest.mark.parametrize("header", HEADERS)
@given(text=ANY_TEXT)
def test_any_other_text_in_a_header_is_a_bad_signature(header, text):
    assume(SIGNATURE not in text.split(" ") and text != HEADERS[header])
    with pytest.raises(BadWebhookSignature):
        verify(SECRET, {**HEADERS, header: text}, BODY, now_s=TIMESTAMP)


@pytest.mark.parametrize("header", HEADERS)
def test_a_missing_header_is_a_bad_signature(header):
    with pytest.raises(BadWebhookSignature):
        verify(SECRET, {name: text for name, text in HEADERS.items() if name != header}, BODY, now_s=TIMESTAMP)


@given(st.text("0123456789.-+e x_\u0662", max_size=30))
def test_a_time_that_is_signed_but_unreadable_is_a_bad_signature(timestamp):
    """The text of the time is signed, so a valid signature may come with a time that cannot be read."""
    assume(timestamp != str(TIMESTAMP))
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    mac = standardwebhooks.webhooks.hmac_data(key, f"{MESSAGE_ID}.{timestamp}.{BODY.decode()}".encode())
    headers = {**HEADERS, "webhook-timestamp": timestamp, "webhook-signature": "v1," + base64.b64encode(mac).decode()}
    with pytest.raises(BadWebhookSignature):
        verify(SECRET, headers, BODY, now_s=TIMESTAMP + 10**10)


@pytest.mark.parametrize("away", [TOLERANCE_S, -TOLERANCE_S])
def test_a_message_is_good_for_five_minutes_around_now(away):
    verify(SECRET, HEADERS, BODY, now_s=TIMESTAMP + away)
    with pytest.raises(BadWebhookSignature):
        verify(SECRET, HEADERS, BODY, now_s=TIMESTAMP + away * 1.01)


def test_without_a_secret_nothing_is_signed():
    with pytest.raises(ValueError, match="at least one secret"):
        signed()


@pytest.mark.parametrize("secret", ["whsec_!", "whsec_abc", "whsec_é"])
def test_a_secret_that_is_none_is_refused_and_not_quoted(secret):
    with pytest.raises(ValueError, match="a webhook secret is") as caught:
        signed(secret)
    assert secret not in str(caught.value)

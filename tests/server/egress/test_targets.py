"""Tests of targets.py: which URLs of users the service calls. Everything but plain public addresses is refused."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from server.egress.targets import Target, TargetNotAllowed, is_public, judge_addresses, parse_target

LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))

INSIDE = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.255.255.254", "169.254.169.254",
    "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.0.1",
    "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
    "168.63.129.16", "::", "::1", "::7f00:1", "::ffff:10.0.0.1", "::ffff:127.0.0.1", "::ffff:169.254.169.254",
    "::ffff:192.88.99.1", "64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1", "100::1", "2001::1",
    "2001:0:7f00:1::", "2001:2::1", "2001:10::1", "2001:20::1", "2001:db8::1", "2002:7f00:1::",
    "2002:808:808::", "3fff::1", "5f00::1", "fc00::1", "fd12:3456::1", "fe80::1", "fec0::1", "ff02::1",
    "ff0e::1", "4000::1", "8000::1", "fe00::1",
]  # fmt: skip

PUBLIC = [
    "1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1", "192.0.1.1",
    "192.167.0.1", "198.17.0.1", "198.20.0.1", "223.255.255.1", "::ffff:8.8.8.8", "2600::1",
    "2606:4700:4700::1111", "2a00:1450:4001:81b::200e", "2001:4860:4860::8888", "3ffe::1",
]  # fmt: skip


def target_of(url: str, *, allow_http: bool = False, allowed=()) -> Target:
    return parse_target(url, allow_http=allow_http, allowed=allowed)


# Addresses


@pytest.mark.parametrize("address", INSIDE)
def test_an_address_inside_is_not_public(address):
    assert not is_public(ip_address(address))
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(TargetNotAllowed):
        target_of(f"https://{host}/")
    with pytest.raises(TargetNotAllowed):
        judge_addresses(target_of("https://example.org/"), [ip_address(address)], allowed=())


@pytest.mark.parametrize("address", PUBLIC)
def test_an_address_outside_is_public(address):
    assert is_public(ip_address(address))
    host = f"[{address}]" if ":" in address else address
    assert target_of(f"https://{host}/").host == str(ip_address(address))
    judge_addresses(target_of("https://example.org/"), [ip_address(address)], allowed=())


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_is_judged_alike_when_written_inside_ipv6(address):
    assert is_public(IPv6Address(f"::ffff:{address}")) == is_public(address)
    for embedding in ("::{}", "64:ff9b::{}", "64:ff9b:1::{}"):
        assert not is_public(IPv6Address(embedding.format(address)))
    assert not is_public(IPv6Address(0x2002 << 112 | int(address) << 80))


@given(st.ip_addresses())
def test_nothing_is_public_that_python_calls_private(address):
    assume(address.is_private or address.is_loopback or address.is_link_local or address.is_multicast)
    assert not is_public(address)


# What an operator allows


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8123/hook", "http://[::1]:8123/hook", "http://[::ffff:127.0.0.1]:99/"]
)
def test_an_allowed_network_may_be_called_on_any_port(url):
    target = target_of(url, allow_http=True, allowed=LOOPBACK)
    judge_addresses(target, [ip_address(target.host)], allowed=LOOPBACK)


def test_allowing_one_network_allows_no_other_and_no_other_port_elsewhere():
    for url in ("http://10.0.0.1/", "http://8.8.8.8:8080/", "http://[::ffff:10.0.0.1]/"):
        with pytest.raises(TargetNotAllowed):
            target_of(url, allow_http=True, allowed=LOOPBACK)
    named = target_of("https://example.org:8080/", allowed=LOOPBACK)
    judge_addresses(named, [IPv4Address("127.0.0.1")], allowed=LOOPBACK)
    with pytest.raises(TargetNotAllowed, match="port 8080"):
        judge_addresses(named, [IPv4Address("8.8.8.8")], allowed=LOOPBACK)


# What is written


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("https://example.org", "https://example.org/"),
        ("HTTPS://Example.ORG:443/a/b?c=d#e", "https://example.org/a/b?c=d"),
        ("https://example.org./x", "https://example.org/x"),
        ("https://example.org:80/", "https://example.org:80/"),
        ("https://example.org?q=1", "https://example.org/?q=1"),
        ("https://example.org/a%20b/ü?x=ü&y=[1]", "https://example.org/a%20b/%C3%BC?x=%C3%BC&y=[1]"),
        ("https://example.org/a/../b//./c?", "https://example.org/a/../b//./c?"),
        ("https://example.org?", "https://example.org/?"),
        ("https://example.org/%7E%2e%2E/{a}|`^?x=\"<>'&&=#e", "https://example.org/%7E%2e%2E/{a}|`^?x=\"<>'&&="),
        ("https://müller.example/", "https://xn--mller-kva.example/"),
        ("https://my_bucket.example.org/", "https://my_bucket.example.org/"),
        ("https://1.2.3.example/", "https://1.2.3.example/"),
        ("https://[2606:4700:0::1]/", "https://[2606:4700::1]/"),
        ("https://example.org/?url=https://u:p@10.0.0.1:99/", "https://example.org/?url=https://u:p@10.0.0.1:99/"),
    ],
)
def test_a_plain_url_is_called_as_it_reads(url, plain):
    assert target_of(url).url == plain


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.org",
        "/etc/passwd",
        "file:///etc/passwd",
        "ftp://example.org/",
        "gopher://example.org/",
        "data:audio/wav;base64,AAAA",
        "javascript:alert(1)",
        "http://example.org/",
        "https://",
        "https:///x",
        "https://u:p@example.org/",
        "https://u@example.org/",
        "https://@example.org/",
        "https://example.org@10.0.0.1/",
        "https://example.org:22/",
        "https://example.org:8443/",
        "https://example.org:0/",
        "https://example.org:99999/",
        "https://example.org:x/",
        "https://exam ple.org/",
        "https://example.org/a b",
        "https://example.org/\n",
        "https://example.org\t/",
        "https://example.org\\@10.0.0.1/",
        "https://exa\x00mple.org/",
        "https://[::1",
        "https://[::1%25eth0]/",
        "https://[2606:4700::1%251]/",
        "https://::1/",
        "https://-example.org/",
        "https://example..org/",
        "https://example.org/" + "x" * 2048,
        "https://" + "a." * 150 + "org/",
        "https://" + "a" * 64 + ".org/",
        "https://\ud800.org/",
        "https://*.example.org/",
        "https://exa%6dple.org/",
    ],
)
def test_what_is_not_a_plain_public_https_url_is_refused(url):
    with pytest.raises(TargetNotAllowed):
        target_of(url)


@pytest.mark.parametrize(
    "host",
    ["127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1", "017700000001", "0177.0.0.1", "1.2.3.4.5", "08.08.08.08",
     "127.0.0.1.", "①②⑦.0.0.1", "127。0。0。1", "\uff11\uff12\uff17.0.0.1", "0x", "1.0x7f", "999.1.1.1",
     "256.256.256.256"],
)  # fmt: skip
def test_an_address_in_disguise_is_refused(host):
    with pytest.raises(TargetNotAllowed):
        target_of(f"https://{host}/")


def test_http_is_called_only_where_the_operator_allows_it():
    assert target_of("http://example.org/a.mp3", allow_http=True).url == "http://example.org/a.mp3"
    assert target_of("http://example.org:443/", allow_http=True).authority == "example.org:443"
    with pytest.raises(TargetNotAllowed):
        target_of("ftp://example.org/", allow_http=True)


def test_a_refusal_never_quotes_a_password_or_a_query():
    for url in ("https://u:hunter2@10.0.0.1/", "https://10.0.0.1/?token=hunter2", "https://x:99/?hunter2"):
        with pytest.raises(TargetNotAllowed) as caught:
            target_of(url)
        assert "hunter2" not in str(caught.value)


URLISH = st.text(st.sampled_from("https:/.@[]%?#\\ 0127xafe-_é。①"), max_size=30)


@given(
    st.sampled_from(["", "https://", "https://127.", "https://[", "https://a.b:"]), st.text(st.characters()) | URLISH
)
def test_any_text_is_a_target_in_plain_spelling_or_refused(start, rest):
    try:
        target = target_of(start + rest)
    except TargetNotAllowed:
        return
    assert target.scheme == "https"
    assert target.port in (80, 443)
    assert target.url.isascii()
    assert target.resource.startswith("/")
    assert target_of(target.url) == target


@given(st.sampled_from(["https://", "https://a.b:", "https://a.b/"]), st.text(st.characters()) | URLISH)
def test_every_reader_of_the_plain_spelling_finds_the_same_host(start, rest):
    """If two parsers disagree about the host of a URL, a check can be bypassed."""
    try:
        target = target_of(start + rest)
    except TargetNotAllowed:
        return
    assert urlsplit(target.url).hostname == target.host
    called = httpx.URL(target.url)
    assert called.raw_host.decode().strip("[]") == target.host
    assert (called.port or 443) == target.port

"""Tests of client_addresses.py: the address of a client cannot be forged, and is shortened to what one client has."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.http.client_addresses import NOBODY, address_key, client_address

PROXIES = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))
NO_PROXIES = ()


@pytest.mark.parametrize(
    ("peer", "forwarded_for", "client"),
    [
        ("203.0.113.9", [], "203.0.113.9"),
        ("203.0.113.9", ["198.51.100.1"], "203.0.113.9"),  # not a trusted proxy, so its header does not count
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", [""], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["1.1.1.1, 198.51.100.1"], "198.51.100.1"),  # the left one came from the client
        ("10.0.0.1", ["1.1.1.1", "198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["198.51.100.1, 10.0.0.2", "10.0.0.3"], "198.51.100.1"),
        ("10.0.0.1", ["10.0.0.2"], "10.0.0.2"),  # a client in the operator's network
        ("10.0.0.1", ["198.51.100.1,, "], "198.51.100.1"),
        ("10.0.0.1", ["198.51.100.1:4711"], "198.51.100.1"),
        ("10.0.0.1", ["[2001:db8::1]:4711"], "2001:db8::1"),
        ("10.0.0.1", ["2001:db8::1"], "2001:db8::1"),
        ("10.0.0.1", ["::ffff:198.51.100.1"], "198.51.100.1"),
        ("::ffff:10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("fd00::1", ["198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["unknown"], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.1, _hidden"], "10.0.0.1"),
        ("10.0.0.1", ["_hidden, 198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["198.51.100.1, nonsense, 10.0.0.2"], "10.0.0.1"),
    ],
)
def test_the_nearest_hop_that_is_not_ours_is_the_client(peer, forwarded_for, client):
    assert client_address(peer, forwarded_for, PROXIES) == ip_address(client)


def test_without_trusted_proxies_the_peer_is_the_client_even_on_loopback():
    assert client_address("127.0.0.1", ["203.0.113.9"], NO_PROXIES) == IPv4Address("127.0.0.1")


@pytest.mark.parametrize("peer", [None, "", "testclient", "/run/scribewire.sock"])
def test_a_peer_without_an_address_is_nobody_whatever_it_says(peer):
    assert client_address(peer, ["203.0.113.9"], PROXIES) is None
    assert address_key(None) == NOBODY


HEADERS = st.lists(st.text(st.characters(max_codepoint=255)) | st.text("0123456789.:,[] af", max_size=40), max_size=3)


@given(HEADERS, st.ip_addresses().filter(lambda ip: not any(ip in network for network in PROXIES)))
def test_nothing_a_client_sends_changes_what_our_proxy_saw(forged, seen):
    """The proxy appends the address of its peer. Everything to the left of it comes from the client."""
    if isinstance(seen, IPv6Address) and seen.ipv4_mapped:
        seen = seen.ipv4_mapped
    assert client_address("10.0.0.1", [*forged, str(seen)], PROXIES) == seen


@given(HEADERS)
def test_any_header_gives_an_address_and_a_stranger_gives_his_own(forwarded_for):
    assert client_address("10.0.0.1", forwarded_for, PROXIES) is not None
    assert client_address("8.8.8.8", forwarded_for, PROXIES) == IPv4Address("8.8.8.8")


# Folding


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("203.0.113.9", "203.0.113.9/32"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8::", "2001:db8::/64"),
        ("::1", "::/64"),
    ],
)
def test_an_ipv4_address_counts_alone_and_an_ipv6_one_with_its_64(address, key):
    assert address_key(ip_address(address)) == key


def test_an_ipv4_address_inside_ipv6_counts_as_itself():
    assert address_key(client_address("::ffff:203.0.113.9", [], ())) == "203.0.113.9/32"


def test_a_zone_is_no_part_of_the_address():
    assert address_key(client_address("fe80::1%eth0", [], ())) == "fe80::/64"


@given(st.ip_addresses(v=6), st.integers(0, 2**64 - 1))
def test_all_addresses_of_a_64_are_one(address, low):
    assert address_key(address) == address_key(IPv6Address(int(address) >> 64 << 64 | low))
    assert address_key(address) != address_key(IPv6Address(int(address) ^ 1 << 64))


@given(st.ip_addresses(v=4), st.ip_addresses(v=4))
def test_two_ipv4_addresses_are_two(one, other):
    assert (address_key(one) == address_key(other)) == (one == other)

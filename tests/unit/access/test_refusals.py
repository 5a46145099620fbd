"""Which refusals are told: one a second for each address, and no memory for more addresses than are told apart."""

from __future__ import annotations

from gossipkv.access.refusals import MOST_ADDRESSES, QUIET_S, Refusals


def test_one_a_second_for_each_address() -> None:
    """Also of an address that goes on and on, and however many others there are."""
    refusals = Refusals()
    told = [refusals.is_told(address, tick * QUIET_S / 4) for tick in range(9) for address in ("10.0.0.1", "10.0.0.2")]
    assert told == [tick % 4 == 0 for tick in range(9) for _ in range(2)]


def test_memory_is_bounded() -> None:
    """Those who were told of last are remembered."""
    refusals = Refusals()
    addresses = [f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}" for number in range(3 * MOST_ADDRESSES)]
    assert all(refusals.is_told(address, 0.0) for address in addresses)
    assert len(refusals._told_at) == MOST_ADDRESSES
    assert not any(refusals.is_told(address, 0.0) for address in addresses[-MOST_ADDRESSES:])

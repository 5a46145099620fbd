"""The addresses of a client, and the names by which they were found."""

from __future__ import annotations

from gossipkv.address import Address
from gossipkv.client.route import AddressRoute

A, B, C = (Address(f"10.0.0.{number}", 7) for number in (1, 2, 3))


def test_names_of_members_are_those_of_certificates():
    """A member's name comes before the given one; an address that the name has no longer is not called by it."""
    service, first, second = (Address(host, 7) for host in ("nodes", "n1.nodes", "n2.nodes"))
    route = AddressRoute([service])
    route.resolve(service, [A, B])
    assert (route.host_of(A), route.host_of(C)) == ("nodes", C.host)
    route.learn([first], [second])
    route.resolve(first, [A])
    route.resolve(second, [B])
    assert (route.host_of(A), route.host_of(B)) == ("n1.nodes", "nodes")
    route.learn([first], [second])
    assert route.addresses[0] == A
    route.resolve(first, [C])
    assert (route.host_of(A), route.host_of(C)) == ("nodes", "n1.nodes")

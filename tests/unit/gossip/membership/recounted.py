"""Recount from the beginning the totals and links that membership keeps by increments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossipkv.gossip.member import REACHABLE, MemberState

if TYPE_CHECKING:
    from gossipkv.gossip.core import Gossip
    from gossipkv.gossip.membership.beliefs import Beliefs
    from gossipkv.gossip.membership.members import MemberTable
    from gossipkv.gossip.membership.rumours import Rumours
    from gossipkv.gossip.membership.timers import Timers


def recount_core(core: Gossip) -> None:
    recount(core.members, core._beliefs, core._rumours, core._timers)
    detector = core._detector
    left = detector._ring[detector._place :]
    assert all(peer.awaits_probe for peer in left)
    assert len({id(peer) for peer in left}) == len(left)
    assert sum(peer.awaits_probe for peer in core.members.peers.values()) <= len(left)


def recount(members: MemberTable, beliefs: Beliefs, rumours: Rumours, timers: Timers) -> None:
    reachable = {id_ for id_, peer in members.peers.items() if peer.member.state in REACHABLE}
    assert {peer.member.id for peer in members._reachable} == reachable
    assert set(members._gone) == members.peers.keys() - reachable
    assert all(members._reachable[place].member.id == id_ for id_, place in members._places.items())
    assert members.reachable == len(reachable) + 1
    for id_, peer in members.peers.items():
        assert id_ == peer.member.id != members.own.id
        assert (peer.alive, peer.reachable) == (peer.member.state is MemberState.ALIVE, id_ in reachable)
    suspected = {id_ for id_, peer in members.peers.items() if peer.member.state is MemberState.SUSPECT}
    assert beliefs._suspicions.keys() == suspected
    waiting = {subject: part for some in rumours._waiting for subject, part in some.items()}
    assert waiting.keys() == rumours._sent.keys() <= members.peers.keys() | {members.own.id}
    assert rumours.size == sum(map(len, waiting.values()))
    assert timers.next_ms == min((at_ms for at_ms, *_ in timers._heap), default=timers.next_ms)
    expiring = {call.args[1] for *_, call in timers._heap if getattr(call, "func", None) == beliefs._expire}
    assert set(beliefs._suspicions.values()) <= expiring

"""Words by which a node knows that it is a member who tells it of stores, where nodes prove nothing to each other.

A position of a store closes that store for good (`register.seen`), so what anybody may send must not count.  Each node
says a word of its own to each member, in the `hello` with which it dials that member at its address, and nowhere else.
Whoever tells positions with that word was reached there.
"""

from __future__ import annotations

import contextlib
import hmac
from typing import TYPE_CHECKING, Final, final

from gossipkv.errors import ProtocolError
from gossipkv.register.seen import teller_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from gossipkv.gossip.member import Member
    from gossipkv.register.shell import Registers

WORD_BYTES: Final = 16


@final
class Words:
    """The words of this node for others, and theirs for it.

    `knows_peers`: methods between nodes are only for those who have proved to be nodes.
    """

    def __init__(self, random: Random, members: Callable[[], Sequence[Member]], *, knows_peers: bool) -> None:
        self._members = members
        self._knows_peers = knows_peers
        self._secret = random.randbytes(WORD_BYTES)  # Of this life; words are made of it.
        self._heard: dict[bytes, bytes] = {}  # By member.
        self._registers: Registers | None = None

    def use(self, registers: Registers) -> None:
        """Tell and take in, from now on, what is seen of stores there."""
        self._registers = registers
        registers.word_to = lambda node: self._heard.get(node, b"")

    def made_for(self, node: bytes) -> bytes:
        """Return the word to be said to that member at its address."""
        return hmac.digest(self._secret, node, "sha256")[:WORD_BYTES]

    def hear(self, node: bytes, word: bytes) -> None:
        """Keep what a member wants to be told; by a stranger's word this node is believed less, until the next one."""
        known = {member.uuid for member in self._members()}
        if word and node in known:
            self._heard = {each: kept for each, kept in self._heard.items() if each in known} | {node: word}

    def counts(self, seen: bytes) -> bool:
        """Return True if positions count that came with a request to the acceptor here.

        Raises:
            ProtocolError: they do not have that form.
        """
        teller, word = teller_of(seen)
        return self._knows_peers or hmac.compare_digest(word, self.made_for(teller))

    def tell_seen(self, node: bytes) -> bytes:
        """Return what hello answers a node of its store; nothing, while this one does not take part."""
        return b"" if self._registers is None else self._registers.tell_node(node)

    def hear_seen(self, seen: bytes, *, is_proven: bool) -> None:
        """Take in what a dialled member has answered of stores; `is_proven`: it has proved to be that member."""
        if seen and self._registers is not None and (is_proven or not self._knows_peers):
            with contextlib.suppress(ProtocolError):  # Each request tells it again.
                self._registers.hear(seen)

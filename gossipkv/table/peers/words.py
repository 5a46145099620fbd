"""Words that identify members when they report positions of stores, in clusters where nodes prove nothing.

A reported position can close a store for good (`register.seen`), so a stranger's report must not count. Each node
derives a secret word for each member, and sends the word only in the `hello` with which it dials the member's address.
A sender that knows the word was reached at that address.
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
    """The words of this node for members, and their words for this node.

    `knows_peers`: True if only proven nodes may call methods between nodes.
    """

    def __init__(self, random: Random, members: Callable[[], Sequence[Member]], *, knows_peers: bool) -> None:
        self._members = members
        self._knows_peers = knows_peers
        self._secret = random.randbytes(WORD_BYTES)  # Key of the words; drawn at each start.
        self._heard: dict[bytes, bytes] = {}  # By member.
        self._registers: Registers | None = None

    def use(self, registers: Registers) -> None:
        """Exchange the positions of these registers from now on."""
        self._registers = registers
        registers.word_to = lambda node: self._heard.get(node, b"")

    def made_for(self, node: bytes) -> bytes:
        """Return the word for a member, to be sent to its address only."""
        return hmac.digest(self._secret, node, "sha256")[:WORD_BYTES]

    def hear(self, node: bytes, word: bytes) -> None:
        """Keep a member's word for this node. If it is forged, the member ignores reports until its next `hello`."""
        members = {member.uuid for member in self._members()}
        if word and node in members:
            self._heard = {member: kept for member, kept in self._heard.items() if member in members} | {node: word}

    def counts(self, seen: bytes) -> bool:
        """Return True if the positions in a request to the local acceptor count.

        Raises:
            ProtocolError: the positions are malformed.
        """
        teller, word = teller_of(seen)
        return self._knows_peers or hmac.compare_digest(word, self.made_for(teller))

    def tell_seen(self, node: bytes) -> bytes:
        """Return the positions for a `hello` answer to a node; empty while this node does not take part."""
        return b"" if self._registers is None else self._registers.tell_node(node)

    def hear_seen(self, seen: bytes, *, is_proven: bool) -> None:
        """Take the positions in a dialled member's answer; `is_proven`: the member has proved its identity."""
        if seen and self._registers is not None and (is_proven or not self._knows_peers):
            with contextlib.suppress(ProtocolError):  # Each request repeats the positions.
                self._registers.hear(seen)

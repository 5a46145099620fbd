"""Methods about the members of the cluster, and between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from gossipkv.errors import Unauthorized
from gossipkv.node.access import PROVEN, shown
from gossipkv.node.peers import hello
from gossipkv.wire.results import DeferredResult, ProvenUser

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.node.access import Access
    from gossipkv.node.gossip import Gossiping
    from gossipkv.node.methods import Method
    from gossipkv.serving.loop import Caller
    from gossipkv.table.peers.words import Words
    from gossipkv.wire.arguments import Arguments
    from gossipkv.wire.rpc import Value

# Entries of the tree that are listed in one turn of the task; longer lists take several turns.
FEW_ENTRIES: Final = 250


@final
class ClusterMethods:
    """The methods about members and the tree."""

    def __init__(
        self,
        cluster: Gossiping,
        words: Words,
        access: Access,
        *,
        serves: Callable[[str, bytes, str], Value],
        prove: Callable[[bytes | None], bool] = lambda _: False,
    ) -> None:
        """`serves` answers a member's direct question, given database, identity and asker.

        `prove` raises Unauthorized unless the current caller is the node of that uuid, or for None any node.
        """
        self._cluster, self._words, self._access = cluster, words, access
        self._serves_what, self._prove = serves, prove
        self.methods: dict[bytes, Method] = {
            b"serves": self._serves,
            b"whose": access.whose,
            b"gossip": self._gossip,
            b"members": self._members,
            b"children": self._children,
            b"entries": self._entries,
        }

    def hello(self, arguments: Arguments, caller: Caller) -> Value | ProvenUser:
        """Answer `hello`, by which another node begins a connection."""
        fields = arguments.map("hello")
        arguments.end()
        mine, theirs, prover = self._cluster.hello, hello.of_fields(fields), self._cluster.prover
        is_proven = self._prove(theirs.uuid)
        mine.check(theirs)
        mine = mine._replace(protocol=min(mine.versions.newest, theirs.versions.newest))
        if prover is not None:
            try:
                mine, has_key = prover.answer(mine, theirs, b"%d %d" % (caller.pump, caller.handle))
            except Unauthorized:
                self._access.note_refused(shown(caller.address), "hello")
                raise
            is_proven = is_proven or has_key
        self._words.hear(theirs.uuid, theirs.word)
        answer = mine._replace(seen=self._words.tell_seen(theirs.uuid)).to_map()
        if is_proven or not self._access.knows_peers:  # From now on the connection has the limits between nodes.
            return ProvenUser(PROVEN if is_proven else caller.user, answer)
        return answer

    def _serves(self, arguments: Arguments) -> Value:
        database, wire_id, asker = arguments.text("database"), arguments.blob("identity"), arguments.text("node")
        arguments.end()
        return self._serves_what(database, wire_id, asker)

    def _gossip(self, arguments: Arguments) -> Value:
        request = arguments.blob("request")
        arguments.end()
        self._prove(None)
        return self._cluster.reply(request)

    def _members(self, arguments: Arguments) -> Value:
        arguments.end()
        return [*self._cluster.members()]

    def _children(self, arguments: Arguments) -> Value:
        path = arguments.path("path")
        return [*self._cluster.children(path, everything=arguments.options("all").flag("all"))]

    def _entries(self, arguments: Arguments) -> Value | DeferredResult:
        path = arguments.path("path")
        everything = arguments.options("all").flag("all")
        keys = self._cluster.keys(path, everything=everything)
        if len(keys) <= FEW_ENTRIES:
            return [*self._cluster.entries(path, keys, everything=everything)]

        async def list_them() -> Value:
            return [*await self._cluster.many_entries(path, keys, everything=everything)]

        return DeferredResult(list_them, shared_by=("entries", path, everything))

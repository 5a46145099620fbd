"""What one node has of one map: the pages that it holds, and how it gets those that it lacks.

A page is its name, so whoever has it may give it; what is new of a map is checked before it is kept, as a change of a
root that is held, or else page by page.  Pages and the pin of their root are synced together (`holding.py`).
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, final

import trio

from gossipkv.errors import GossipKVError, Overloaded, ProtocolError
from gossipkv.register.metadata.holding import Batch, Holding, page_key
from gossipkv.register.metadata.pages import MissingPage, decode_root, name_of
from gossipkv.register.metadata.tree import check_all, check_change, pages_of
from gossipkv.register.space import MAP, MOST_BATCH_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from gossipkv.register.metadata.tree import Changed, Kind
    from gossipkv.register.space import Space
    from gossipkv.wire.rpc import Value

T = TypeVar("T")

MOST_PAGES: Final = 8  # Of one question: half a megabyte.
MOST_PINS: Final = 256  # Roots that are not decided yet: honest servers have a few, one for each that swaps.
FEW_PAGES: Final = 8  # Are checked at once; more, beside the loop: a page has some 400 partitions.
ASK_S: Final = 2.0


class AskNode(Protocol):
    """How another node is asked."""

    async def __call__(self, node: bytes, method: str, params: list[Value], timeout_s: float) -> Value:
        """Ask the node of that uuid.  Raises GossipKVError: as it answers, or `Unavailable` if it does not."""
        ...


class Beside(Protocol):
    """How what takes long is done beside the loop."""

    async def __call__(self, do: Callable[[], T]) -> T:
        """Run it in a worker thread; returns what it returns, and raises what it raises."""
        ...


@final
class Ledger:
    """The map of one register, as far as it is here."""

    def __init__(
        self,
        register: bytes,
        kind: Kind,
        space: Space,
        ask: AskNode,
        *,
        beside: Beside,
        records: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        """`records`: what the store has of it, by keys without the register.

        Raises:
            ProtocolError, UnsupportedFormat, MissingPage: see `Holding`.
        """
        self.register = register
        self.kind = kind
        self._prefix = MAP + register
        self._space = space
        self._ask = ask
        self._beside = beside
        self._holding = Holding(records)
        self._fresh: dict[
            bytes, tuple[int, bytes]
        ] = {}  # Pages that are not synced yet, and the serial of their batch.
        self._fetching = trio.Lock()
        self.sources: list[bytes] = []  # Who has given what is new of it last.

    def holds(self, root: bytes) -> bool:
        """Whether a root is pinned and all its pages are here, synced."""
        return self._holding.holds(root)

    def read(self, name: bytes) -> bytes:
        """The bytes of a page.  Raises MissingPage: it is not here."""
        fresh = self._fresh.get(name)
        page = fresh[1] if fresh is not None else self._space.get(self._prefix + page_key(name))
        if page is None:
            raise MissingPage(name)
        return page

    def pages(self, names: Sequence[bytes]) -> list[bytes | None]:
        """Those of some pages that are here."""
        found: list[bytes | None] = []
        for name in names[:MOST_PAGES]:
            try:
                found.append(self.read(name))
            except MissingPage:
                found.append(None)
        return found

    async def pin(self, root: bytes, config: int, pages: Mapping[bytes, bytes]) -> None:
        """Keep a root and these of its pages; returns when that is synced.

        Raises:
            MissingPage, ProtocolError, UnsupportedFormat: see `Holding.pin`; or a page has been collected meanwhile.
            Overloaded: too many roots are pinned, of which none was chosen.
            Unavailable: the store is closed.
        """
        if not self.holds(root) and self._holding.count >= MOST_PINS:
            raise Overloaded(f"{MOST_PINS} maps of this register are held already, and none of them is decided")
        for piece in _pieces(root, pages):
            await self._write(self._holding.pin(root, config, piece))
        if not self.holds(root):
            raise MissingPage(root)

    async def take(self, base: bytes | None, changed: Changed, config: int, source: bytes) -> None:
        """Hold what a transaction makes of the root `base` (None: a first map); `source` gives what is not here of it.

        Raises:
            ProtocolError, UnsupportedFormat: it is no change of that root, or not as maps of this kind are.
            MissingPage: a page is missing, and `source` has not given it.
            Unavailable: the store is closed.
        """
        self.sources = [source]
        if self.holds(changed.root):
            return
        if base is not None and self.holds(base):
            with contextlib.suppress(MissingPage):
                check_change(self.read, self.kind, base, changed, config)
                await self.pin(changed.root, config, changed.pages)
                return
        await self.fetch(changed.root, config, [source], offered=changed.pages)

    async def fetch(
        self, root: bytes, config: int, sources: Iterable[bytes], *, offered: Mapping[bytes, bytes] | None = None
    ) -> None:
        """Hold a root; what is missing is asked of one source after the other.  Raises as `take`."""
        async with self._fetching:
            if self.holds(root):
                return
            pages = {name: page for name, page in (offered or {}).items() if name_of(page) == name}
            for source in [*sources, None]:
                missing = self._missing(root, pages)
                if not missing:
                    break
                if source is None:
                    raise MissingPage(missing[0])
                await self._fetch_from(source, root, pages)

            first = pages.pop(root, None) or self.read(root)
            new = {name: pages[name] for name in pages_of(root, first) if name in pages} | {root: first}
            if decode_root(root, first).config != config:
                raise ProtocolError(f"a root of another config id than {config}")
            check = partial(check_all, new.__getitem__, self.kind, root, only=new.keys())
            if len(new) > FEW_PAGES:
                await self._beside(check)
            else:
                check()
            await self.pin(root, config, new)

    def _missing(self, root: bytes, pages: Mapping[bytes, bytes]) -> list[bytes]:
        try:
            names = pages_of(root, pages[root] if root in pages else self.read(root))
        except MissingPage:
            return [root]
        return [name for name in self._holding.missing(names) if name not in pages]

    async def _fetch_from(self, source: bytes, root: bytes, pages: dict[bytes, bytes]) -> None:
        """Ask one node for all that is missing, as long as it gives what it is asked for."""
        while missing := self._missing(root, pages)[:MOST_PAGES]:
            try:
                answer = await self._ask(source, "metadata_pages", [self.register, [*missing]], ASK_S)
            except GossipKVError:
                return
            given = answer if isinstance(answer, list) else []
            found = {name_of(page): page for page in given if isinstance(page, bytes)}
            new = {name: found[name] for name in missing if name in found}
            if not new:
                return
            pages |= new

    async def collect(self, chosen: int, kept: Collection[bytes]) -> None:
        """Let go of what nobody can need any more, see `Holding.collect`."""
        batch = self._holding.collect(chosen, kept)
        if batch.deletes:
            await self._write(batch)

    async def discard(self) -> None:
        """Let go of all: the table is gone."""
        batch = self._holding.discard()
        if batch.deletes:
            await self._write(batch)

    async def _write(self, batch: Batch) -> None:
        prefix = self._prefix
        pages = {key[1:]: page for key, page in batch.puts.items() if key == page_key(key[1:])}
        self._fresh |= {name: (batch.serial, page) for name, page in pages.items()}

        def on_synced() -> None:
            self._holding.synced(batch.serial)
            for name in pages:
                if self._fresh.get(name, (0,))[0] == batch.serial:
                    del self._fresh[name]

        records: dict[bytes, bytes | None] = {prefix + key: value for key, value in batch.puts.items()}
        records |= dict.fromkeys(prefix + key for key in batch.deletes)
        await self._space.write(records, on_synced)


def _pieces(root: bytes, pages: Mapping[bytes, bytes]) -> Iterator[dict[bytes, bytes]]:
    """Pages as they are written: a small change at once, a large map in pieces, its root first."""
    piece: dict[bytes, bytes] = {root: pages[root]} if root in pages else {}
    for name, page in pages.items():
        if sum(map(len, piece.values())) + len(page) > MOST_BATCH_BYTES:
            yield piece
            piece = {}
        piece[name] = page
    yield piece

"""The pages of one map on one node: pins of their roots, and fetching of missing pages.

A page is named by its content, so any node may provide it. New pages are checked before they are kept, as a change of a
held root or page by page. Pages and pins are records of the store, behind the register:

    0, root    the config id for which the root is pinned, 8 bytes big-endian
    1, name    a page

Invariants: a page is present only while a pinned root names it. A root is *here* once its pin and all its pages were
appended; only then is a head with it accepted, by a later record. A root is *held* once they are synced, and only then
reported as held. `RegisterLedger` explains the end of pins.
"""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar, final

import trio

from gossipkv.errors import GossipKVError, Overloaded, ProtocolError
from gossipkv.register.metadata.pages import MAX_MAP_BYTES, MissingPage, decode_root, name_of
from gossipkv.register.metadata.tree import check_all, check_change, pages_of
from gossipkv.register.space import MAP, MAX_BATCH_BYTES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from gossipkv.register.metadata.tree import ChangedPages, MapKind
    from gossipkv.register.space import Space
    from gossipkv.wire.rpc import Value

    # Asks a node, by its uuid, with a method, parameters and a timeout in seconds. Raises GossipKVError: the node's
    # error, or `Unavailable` without an answer.
    AskNode = Callable[[bytes, str, list[Value], float], Awaitable[Value]]

T = TypeVar("T")

_PIN: Final = b"\0"
_PAGE: Final = b"\1"
_CONFIG_BYTES: Final = 8
_ABSENT: Final[Mapping[bytes, bytes | None]] = {}

MAX_PAGES: Final = 256  # Bounds one question.
MAX_ANSWER_BYTES: Final = 256 << 10  # No more pages follow in one answer.
MAX_FETCH_BYTES: Final = 2 * MAX_MAP_BYTES  # Pages that are held for a check: the leaves of a map and what names them.
MAX_LENT: Final = 8  # Roots that stay while other nodes fetch their pages from a changing map.
MAX_PINS: Final = 256  # Undecided roots: honest servers have a few, one for each swap.
FEW_PAGES: Final = 64  # Up to this many pages are checked in the loop, more in a thread.
ASK_S: Final = 2.0


class Beside(Protocol):
    """A function that runs another in a worker thread."""

    async def __call__(self, do: Callable[[], T]) -> T:
        """Run `do` in a worker thread; pass on its result or error."""


class Offer(NamedTuple):
    """A transaction's change of a map, as offered to the other servers."""

    source: bytes  # The node that made the change, and has all of it.
    base: bytes | None  # The root that it changes; None for a first map.
    changed: ChangedPages
    config: int

    def values(self) -> list[Value]:
        """Return the parameters of the methods that carry an offer."""
        return [self.source, self.base, self.changed.root, self.config, [*self.changed.pages.values()]]


class _Pin(NamedTuple):
    config: int
    names: tuple[bytes, ...]  # Pages of the root, its own first.


@final
class RegisterLedger:
    """The local pages of one register's map; a ledger with a closed space accepts no more.

    A page is deleted in the batch that ends the last pin over it. A pin ends in `collect` alone: a refused swap or a
    silence does not end it, since a proposer that finishes the swap later names the root without asking. All decisions
    use the appended state. So a page that is being deleted is missing at once. A node that was told before that the
    page is here is refused when it pins a root that names the page.
    """

    def __init__(
        self,
        register: bytes,
        kind: MapKind,
        space: Space,
        ask: AskNode,
        *,
        beside: Beside,
        records: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        """`records`: the records in the store, by keys without the register, in their order.

        Raises:
            ProtocolError, UnsupportedFormat: a pinned root is no root.
            MissingPage: a pinned root is missing.
        """
        self.register = register
        self.kind = kind
        self._prefix = MAP + register
        self._space = space
        self._ask = ask
        self._beside = beside
        self._is_over = False
        self._pins: dict[bytes, _Pin] = {}  # The key is the root's name.
        self._uses: Counter[bytes] = Counter()  # The number of pinned roots that name a page.
        self._here: dict[bytes, Mapping[bytes, bytes | None] | None] = {}  # Pages, with their batch until it is synced.
        self._fetching = trio.Lock()
        self._taking: dict[bytes, trio.Event] = {}  # Roots that are arriving, until they are pinned.
        self._kept: list[bytes] = []  # Roots that `keeping` protects.
        self._lent: deque[bytes] = deque(maxlen=MAX_LENT)  # Roots that other nodes have asked for last.
        self.sources: list[bytes] = []  # Nodes that have provided changes last.
        stored = dict(records)

        def read(name: bytes) -> bytes:
            if _PAGE + name not in stored:
                raise MissingPage(name)
            return stored[_PAGE + name]

        self._here = {key[1:]: None for key in stored if key[:1] == _PAGE}
        for key, value in stored.items():
            if key[:1] == _PIN:
                self._add(key[1:], _Pin(int.from_bytes(value, "big"), pages_of(read, key[1:])))
        self._here = dict.fromkeys(self._here.keys() & self._uses.keys())  # Pages without a pinned root do not count.

    @property
    def pins(self) -> int:
        """The number of pinned roots."""
        return len(self._pins)

    def has(self, root: bytes) -> bool:
        """Return True if a root is pinned, and all its pages are here, synced or not."""
        pin = self._pins.get(root)
        return pin is not None and all(map(self._here.__contains__, pin.names))

    def holds(self, root: bytes) -> bool:
        """Return True if a root is pinned, and all its pages are synced."""
        pin = self._pins.get(root)
        return pin is not None and all(self._here.get(name, _ABSENT) is None for name in pin.names)

    def read(self, name: bytes) -> bytes:
        """Return the bytes of a page. Raises MissingPage: it is not here."""
        key = self._prefix + _PAGE + name
        batch = self._here.get(name)
        page = self._space.get(key) if batch is None else batch[key]
        if page is None:
            raise MissingPage(name)
        return page

    def pages(self, names: Sequence[bytes]) -> list[bytes | None]:
        """Return the pages of the first few names, None for each that is not here.

        A node that asks for a root asks for the rest next, so the root stays until others were asked for.
        """
        found: list[bytes | None] = []
        size_bytes = 0
        for name in names[:MAX_PAGES]:
            if size_bytes > MAX_ANSWER_BYTES:
                break
            if name in self._pins and name not in self._lent:
                self._lent.append(name)
            try:
                found.append(self.read(name))
                size_bytes += len(found[-1] or b"")
            except MissingPage:
                found.append(None)
        return found

    @contextlib.contextmanager
    def keeping(self, root: bytes) -> Iterator[None]:
        """Protect a pinned root, whatever other nodes ask for and however the map changes."""
        self._kept.append(root)
        try:
            yield
        finally:
            self._kept.remove(root)

    async def pin(self, root: bytes, config: int, pages: Mapping[bytes, bytes]) -> None:
        """Pin a root for the head of that config id, and keep these pages; return when that is synced.

        Raises:
            MissingPage: a page is neither given nor here, or was collected meanwhile.
            ProtocolError, UnsupportedFormat: a page has another name, the root does not name it, or the root is none.
            Overloaded: too many undecided roots are pinned.
            Unavailable: the store is closed; or nothing of the map is here, and only what frees room is written.
        """
        self._check_room(root)
        for records in self._pinned(root, config, pages):
            await self._write(records)
        if not self.holds(root):
            raise MissingPage(root)

    def append(self, changed: ChangedPages, config: int) -> None:
        """Append a change of a root that is here, before any later append. Raises as `pin`."""
        self._check_room(changed.root)
        for records in self._pinned(changed.root, config, changed.pages):
            self._space.append(*self._batch(records))
        if not self.has(changed.root):
            raise MissingPage(changed.root)

    def append_checked(self, offer: Offer) -> None:
        """Append a checked change of another node. Raises as `take`."""
        if self.has(offer.changed.root):
            return
        if offer.base not in self._pins:
            raise MissingPage(offer.base or offer.changed.root)
        check_change(self.read, self.kind, offer.base, offer.changed, offer.config)
        self.append(offer.changed, offer.config)

    def _check_room(self, root: bytes) -> None:
        if self._is_over:
            raise MissingPage(root)
        # A change of what is here replaces that by and by; a first map only takes room.
        if not self._pins:
            self._space.check_free()
        if root not in self._pins and len(self._pins) >= MAX_PINS:
            raise Overloaded(f"this node already holds {MAX_PINS} undecided maps of this register")

    def _pinned(self, root: bytes, config: int, pages: Mapping[bytes, bytes]) -> Iterator[dict[bytes, bytes | None]]:
        """Pin a root; yield the records of the pin and of the new pages, in batches that end after whole pages.

        A page comes after the one that names it, so after a crash each stored page is found from the pinned root.
        """
        pinned = self._pins.get(root)
        if pinned is None and root not in pages:
            raise MissingPage(root)
        names = pages_of(self._reading(pages), root) if pages or pinned is None else pinned.names
        if not pages.keys() <= set(names) or any(name_of(page) != name for name, page in pages.items()):
            raise ProtocolError(f"a page is not named by root {root.hex()[:16]}, or does not match its name")
        self._add(root, _Pin(max(config, pinned.config if pinned is not None else config), names))
        records: dict[bytes, bytes | None] = {}
        size_bytes = 0
        for name in names:
            if name in pages and name not in self._here:
                if records and size_bytes + len(pages[name]) > MAX_BATCH_BYTES:
                    yield self._with_pin(root, records)
                    records, size_bytes = {}, 0
                records[_PAGE + name] = pages[name]
                size_bytes += len(pages[name])
        yield self._with_pin(root, records)

    def _with_pin(self, root: bytes, records: dict[bytes, bytes | None]) -> dict[bytes, bytes | None]:
        if root not in self._pins:
            raise MissingPage(root)
        return {_PIN + root: self._pins[root].config.to_bytes(_CONFIG_BYTES, "big"), **records}

    def _reading(self, pages: Mapping[bytes, bytes]) -> Callable[[bytes], bytes]:
        """Return a function that reads these pages, and those that are here."""
        return lambda name: pages[name] if name in pages else self.read(name)

    async def take(self, offer: Offer) -> None:
        """Hold a transaction's change; its source provides missing pages.

        Raises:
            ProtocolError, UnsupportedFormat: the offer is no change of that root, or breaks the rules of this kind.
            MissingPage: a page is missing, and its source has not provided it.
            Unavailable: the store is closed.
        """
        source, base, changed, config = offer
        self.sources = [source]
        if self.holds(changed.root):
            return
        arrived = self._taking.setdefault(changed.root, trio.Event())
        try:
            if base is not None and base not in self._pins:
                await self._follow(base)
            # The root may be unsynced, since the change is synced after it.
            if base is not None and base in self._pins:
                with contextlib.suppress(MissingPage):
                    check_change(self.read, self.kind, base, changed, config)
                    await self.pin(changed.root, config, changed.pages)
                    return
            await self.fetch(changed.root, config, [source], offered=changed.pages)
        finally:
            self._taking.pop(changed.root, None)
            arrived.set()

    async def _follow(self, base: bytes) -> None:
        """Wait for a root that arrives at the same moment: a busy node receives several at once, in any order."""
        with trio.move_on_after(ASK_S):
            await trio.lowlevel.checkpoint()
            if base in self._taking:
                await self._taking[base].wait()

    async def fetch(
        self, root: bytes, config: int, sources: Iterable[bytes], *, offered: Mapping[bytes, bytes] | None = None
    ) -> None:
        """Hold a root; ask the sources in turn for missing pages. Raises as `take`."""
        async with self._fetching:
            if self.holds(root):
                return
            self._check_room(root)
            pages = {name: page for name, page in (offered or {}).items() if name_of(page) == name}
            for source in [*sources, None]:
                missing = self._missing(root, pages)
                if not missing:
                    break
                if source is None:
                    raise MissingPage(missing[0])
                await self._fetch_from(source, root, pages)

            if root in self._pins and not pages:  # The pages were checked, and are on their way to the disk.
                await self.pin(root, config, {})
                return
            read: dict[bytes, bytes] = {}  # The root and the branches, for a thread that cannot read the store.

            def note(name: bytes) -> bytes:
                read[name] = self._reading(pages)(name)
                return read[name]

            names = pages_of(note, root)
            new = {name: pages[name] for name in names if name in pages} | {root: read[root]}
            if decode_root(root, read[root]).config != config:
                raise ProtocolError(f"the root does not have config id {config}")
            check = partial(check_all, (read | new).__getitem__, self.kind, root, only=new.keys())
            if len(new) > FEW_PAGES:
                await self._beside(check)
            else:
                check()
            await self.pin(root, config, new)

    def _missing(self, root: bytes, pages: Mapping[bytes, bytes]) -> list[bytes]:
        try:
            names = pages_of(self._reading(pages), root)
        except MissingPage:
            return [root]
        return [name for name in names if name not in self._here and name not in pages]

    async def _fetch_from(self, source: bytes, root: bytes, pages: dict[bytes, bytes]) -> None:
        """Ask one node for all missing pages, as long as it provides some."""
        while missing := self._missing(root, pages)[:MAX_PAGES]:
            try:
                answer = await self._ask(source, "metadata_pages", [self.register, [*missing]], ASK_S)
            except GossipKVError:
                return
            received = answer if isinstance(answer, list) else []
            found = {name_of(page): page for page in received if isinstance(page, bytes)}
            new = {name: found[name] for name in missing if name in found}
            if not new:
                return
            pages |= new
            if sum(map(len, pages.values())) > MAX_FETCH_BYTES:
                raise ProtocolError(f"the pages of the map have more than {MAX_FETCH_BYTES} bytes")

    async def collect(self, chosen: int, kept: Collection[bytes]) -> None:
        """End the pins that no node can need any more.

        `chosen` is the config id of a head that a full round showed. `kept` are the roots of its last heads, and those
        that this acceptor's own record names.
        """
        held = {*kept, *self._kept, *self._lent}
        await self._unpin([root for root, pin in self._pins.items() if pin.config <= chosen and root not in held])

    async def discard(self) -> None:
        """End all pins: the table is gone, or its creation was lost."""
        await self._unpin(list(self._pins))

    async def end(self) -> None:
        """Accept no more pages and end all pins: later pages would never be deleted."""
        self._is_over = True
        await self.discard()

    def _add(self, root: bytes, pin: _Pin) -> None:
        if root in self._pins:
            self._uses.subtract(self._pins[root].names)
        self._pins[root] = pin
        if root in self._taking:
            self._taking.pop(root).set()
        self._uses.update(pin.names)

    async def _unpin(self, roots: list[bytes]) -> None:
        records: dict[bytes, bytes | None] = {}
        for root in roots:
            names = self._pins.pop(root).names
            self._uses.subtract(names)
            unused = [name for name in names if not self._uses[name]]
            records |= {_PIN + root: None} | {_PAGE + name: None for name in unused if name in self._here}
            for name in unused:
                del self._uses[name]
                self._here.pop(name, None)
        if records:
            await self._write(records)

    async def _write(self, records: dict[bytes, bytes | None]) -> None:
        await self._space.write(*self._batch(records))

    def _batch(self, records: dict[bytes, bytes | None]) -> tuple[dict[bytes, bytes | None], Callable[[], None]]:
        """Return records for the space, and the callback for their sync."""
        batch = {self._prefix + key: value for key, value in records.items()}
        names = [key[1:] for key, value in records.items() if key[:1] == _PAGE and value is not None]
        self._here |= dict.fromkeys(names, batch)

        def on_synced() -> None:
            for name in names:
                if self._here.get(name) is batch:  # The page may have been deleted, and added again, meanwhile.
                    self._here[name] = None

        return batch, on_synced

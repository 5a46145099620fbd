"""What one server holds of one tree: its pages, and the roots for which it keeps them.

Naming a root pins all its pages, in the very batch that has them synced.  Pages and pins are records of the store:

    0, root    the config id for which the root is pinned, 8 bytes big-endian
    1, name    a page

Invariants: a page is here only while a pinned root names it; a root is *held* when its pin and all its pages are
synced, and only then is a head with it accepted, or told to be held.  A page goes in the batch that ends the last pin
over it, and a pin ends in `collect` alone: not when a swap was refused, and not when nothing was heard of it, since who
finishes that swap later names the root without asking.

Everything is decided on what was appended.  So a page that is to go is missing at once, and whoever was told before
that it is here hears otherwise when he pins the root that names it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple, final

from gossipkv.errors import ProtocolError
from gossipkv.register.metadata.pages import MissingPage, name_of
from gossipkv.register.metadata.tree import pages_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

_PIN: Final = b"\0"
_PAGE: Final = b"\1"
_CONFIG_BYTES: Final = 8


class Batch(NamedTuple):
    """What is to be written at once; `synced(serial)` is to be said when it is on the disk."""

    serial: int
    puts: dict[bytes, bytes]
    deletes: list[bytes]


class _Pin(NamedTuple):
    config: int
    names: tuple[bytes, ...]  # Pages of the root, its own first.


def page_key(name: bytes) -> bytes:
    """Where the store has a page."""
    return _PAGE + name


@final
class Holding:
    """Pages and pins of a tree.  A batch that fails to be written ends it: a new one is made of what the store has."""

    __slots__ = ("_orphans", "_pins", "_serial", "_synced", "_uses", "_written")

    def __init__(self, records: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """Take up what the store has, in the order of its keys.

        Raises:
            ProtocolError, UnsupportedFormat: a root that is pinned is no root.
            MissingPage: it is not there.
        """
        self._serial = 0
        self._synced = 0
        self._pins: dict[bytes, _Pin] = {}  # By the root's name.
        self._uses: Counter[bytes] = Counter()  # How many pinned roots name a page.
        self._written: dict[bytes, int] = {}  # Pages that are here, and the serial of their batch.
        configs: dict[bytes, int] = {}
        for key, value in records:
            tag, name = key[:1], key[1:]
            if tag == _PIN:
                configs[name] = int.from_bytes(value, "big")
                continue
            self._written[name] = 0
            if name in configs:
                self._add(name, _Pin(configs.pop(name), pages_of(name, value)))
        if configs:
            raise MissingPage(min(configs))
        self._orphans = self._written.keys() - self._uses.keys()  # No program that keeps the invariant leaves any.

    @property
    def roots(self) -> dict[bytes, int]:
        """The pinned roots, and the config id for which each is."""
        return {root: pin.config for root, pin in self._pins.items()}

    def missing(self, names: Iterable[bytes]) -> list[bytes]:
        """Those of these pages that are not here."""
        return [name for name in names if name not in self._written]

    def holds(self, root: bytes) -> bool:
        """Whether a root is pinned, and that and all its pages are synced."""
        pin = self._pins.get(root)
        never = self._serial + 1
        return pin is not None and all(self._written.get(name, never) <= self._synced for name in pin.names)

    @property
    def count(self) -> int:
        """How many roots are pinned."""
        return len(self._pins)

    def synced(self, serial: int) -> None:
        """Hear that the batch of that serial, and all before it, are on the disk."""
        assert self._synced <= serial <= self._serial, (self._synced, serial, self._serial)
        self._synced = serial

    def pin(self, root: bytes, config: int, pages: Mapping[bytes, bytes]) -> Batch:
        """Keep a root for the head of that config id, and these of its pages; more of them may follow.

        Raises:
            MissingPage: the root's own page is not among them, nor here.
            ProtocolError, UnsupportedFormat: a page has another name, the root does not name it, or it is no root.
        """
        known = self._pins.get(root)
        if known is None and root not in pages:
            raise MissingPage(root)
        names = pages_of(root, pages[root]) if known is None else known.names
        if not pages.keys() <= set(names) or any(name_of(page) != name for name, page in pages.items()):
            raise ProtocolError(f"pages that root {root.hex()[:16]} does not name, or of another name than their own")
        new = {name: page for name, page in pages.items() if name not in self._written}
        if known is None:
            self._add(root, _Pin(config, names))
        elif known.config < config:
            self._pins[root] = known._replace(config=config)
        self._serial += 1
        self._written |= dict.fromkeys(new, self._serial)
        self._orphans.difference_update(names)
        pin = self._pins[root].config.to_bytes(_CONFIG_BYTES, "big")
        return Batch(self._serial, {_PIN + root: pin} | {page_key(name): page for name, page in new.items()}, [])

    def collect(self, chosen: int, heads: Collection[bytes]) -> Batch:
        """End the pins that nobody can need any more.

        `chosen` is the config id of a head that a full round showed; `heads` are the roots of its last heads, and those
        that this acceptor's own record names.
        """
        return self._unpin([root for root, pin in self._pins.items() if pin.config <= chosen and root not in heads])

    def discard(self) -> Batch:
        """End all pins: of a table that is gone, or whose creation was lost."""
        return self._unpin(list(self._pins))

    def _add(self, root: bytes, pin: _Pin) -> None:
        self._pins[root] = pin
        self._uses.update(pin.names)

    def _unpin(self, roots: list[bytes]) -> Batch:
        gone = list(self._orphans)
        self._orphans.clear()
        for root in roots:
            for name in self._pins.pop(root).names:
                self._uses[name] -= 1
                if not self._uses[name]:
                    del self._uses[name]
                    gone += [name] if name in self._written else []
        for name in gone:
            del self._written[name]
        self._serial += 1
        return Batch(self._serial, {}, [*(_PIN + root for root in roots), *map(page_key, gone)])

"""Which functions have strays refuted?  Noted by the digest of the source, and kept durably for every later start.

A function that was recognised by the first keys of every file, and that one later key strays from, did not make the
files.  Whoever reads that file knows; who skips it has to be told, and must not forget it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

from gossipkv.dataset.rewriting import Rewriting
from gossipkv.errors import Corrupt, UnsupportedFormat

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gossipkv.dataset.local.refuted import Refuted
    from gossipkv.dataset.shared_resources import SharedResources

# Versions come and go, and most sources have no strays: what was noted before so many others is of no version here.
MOST_DIGESTS: Final = 256


@final
class Refutations:
    """What is known of one database's sources."""

    def __init__(self, database: str, shared: SharedResources) -> None:
        self._database = database
        self._shared = shared
        self._log = shared.log.bind(database=database)
        self._known: Refuted = {}
        self.rewriting = Rewriting(self._write, shared.may_write, self._log)

    @property
    def known(self) -> Mapping[str, tuple[str, ...]]:
        """Refuted functions by digest, in the order of their names."""
        return self._known

    async def read(self) -> None:
        """Take what was kept; what is damaged is found again, or heard.

        Raises:
            StorageError: the system refused.
        """
        try:
            kept = await self._shared.threads.run(self._shared.store.refuted, self._database)
        except (Corrupt, UnsupportedFormat) as error:
            self._log.error("refuted_damaged", error=error.message)
            return
        for digest, functions in kept.items():
            self._add(digest, functions)

    def add(self, digest: str, functions: Iterable[str]) -> bool:
        """Whether that was not known; it is written soon."""
        is_new = self._add(digest, functions)
        if is_new:
            self.rewriting.note()
        return is_new

    def _add(self, digest: str, functions: Iterable[str]) -> bool:
        before = self._known.get(digest, ())
        after = tuple(sorted({*before, *functions}))
        if after == before:
            return False
        self._known.pop(digest, None)
        self._known[digest] = after
        while len(self._known) > MOST_DIGESTS:
            del self._known[next(iter(self._known))]
        return True

    async def _write(self) -> None:
        write = partial(self._shared.store.set_refuted, self._database, dict(self._known))
        await self._shared.threads.run(write)

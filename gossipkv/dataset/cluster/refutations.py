"""Partition functions that are refuted for a source, as found here, heard of, or kept since the last run.

A function is recognised by the first keys of each file.  A later key that it would place elsewhere refutes it for the
digest of those files.  A node that relied on it and skipped that file lacks the key, and would answer *absent*. So the
finder publishes the refutation, and each node that hears it keeps and publishes it too.  From then on no version that
relied on the function is counted, asked for or answered.  A version regrouped by that function read all files, and
stays valid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gossipkv.placement.identity import VersionIdentity

MAX_DIGESTS: Final = 256  # Other nodes may publish any digests; digests of known versions are kept the longest.


@final
class Refutations:
    """The refuted functions of one database's sources."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[str, ...]] = {}

    def of(self, digest: str) -> tuple[str, ...]:
        """Return the functions that are refuted for a digest, sorted."""
        return self._of.get(digest, ())

    def all(self) -> dict[str, tuple[str, ...]]:
        """Return all refuted functions by digest, the latest last, for publication and for the disk."""
        return dict(self._of)

    def refutes(self, identity: VersionIdentity) -> bool:
        """True if a version of this identity may lack keys."""
        return not identity.regrouped and identity.function in self.of(identity.digest)

    def learn(self, digest: str, functions: Iterable[str], in_use: Collection[str]) -> bool:
        """Note refuted functions; True if they are new, and must be kept.  `in_use`: digests not to forget."""
        before = self.of(digest)
        more = tuple(sorted({*before, *functions}))
        if more == before:
            return False
        self._of.pop(digest, None)  # The digest moves to the end.
        self._of[digest] = more
        if len(self._of) > MAX_DIGESTS:
            oldest = next((other for other in self._of if other not in in_use), next(iter(self._of)))
            del self._of[oldest]
        return True

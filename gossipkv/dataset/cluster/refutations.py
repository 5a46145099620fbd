"""Which partition functions are refuted for which source, as found here, heard of, or kept since the last run.

A function is recognised by the first keys of each file.  A key further on that it would have put elsewhere refutes it
for the digest of those files: a node that relied on it and skipped that file lacks the key, and would answer *absent*.
So who finds one says so to all, who hears it keeps it and says it too, and nothing that relied on it is counted, asked
or answered from then on.  What was regrouped by that same function read all files, and stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gossipkv.placement.identity import Identity

MOST_DIGESTS: Final = 256  # Others may say anything; digests of versions that are known are kept the longest.


@final
class Refutations:
    """The refuted functions of one database's sources."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[str, ...]] = {}

    def of(self, digest: str) -> tuple[str, ...]:
        """Return the functions that are refuted for a digest, sorted."""
        return self._of.get(digest, ())

    def all(self) -> dict[str, tuple[str, ...]]:
        """Return all that are known, the latest last: what is published, and kept."""
        return dict(self._of)

    def refutes(self, identity: Identity) -> bool:
        """Whether a version of this identity may lack keys."""
        return not identity.regrouped and identity.function in self.of(identity.digest)

    def learn(self, digest: str, functions: Iterable[str], in_use: Collection[str]) -> bool:
        """Take in that these are refuted; true: that is news, and is to be kept.  `in_use`: digests not to forget."""
        known = self.of(digest)
        more = tuple(sorted({*known, *functions}))
        if more == known:
            return False
        self._of.pop(digest, None)  # It stands last again.
        self._of[digest] = more
        if len(self._of) > MOST_DIGESTS:
            oldest = next((each for each in self._of if each not in in_use), next(iter(self._of)))
            del self._of[oldest]
        return True

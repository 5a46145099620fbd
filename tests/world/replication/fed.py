"""A checker of change feeds against all records ever issued; it knows nothing of logs, clocks and tokens.

A feed shows the versions of each key in their order, each once or again, and ends with that of the replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

UNSHOWN = object()


def faults_of(
    shown: Sequence[bytes | None],
    puts: Mapping[bytes, bytes],
    deletes: Sequence[bytes],
    last: bytes | None,
    *,
    is_due: bool,
) -> list[str]:
    """Return the faults of one key.

    `puts`: the order of each value; `deletes`: the orders of tombstones; `last`: the value of the replicas in the end;
    `is_due`: the key changed while the feed ran.
    """
    faults, reached = [], b""
    for value in shown:
        later = [order for order in ((puts[value],) if value is not None else deletes) if order >= reached]
        if not later:
            faults.append(f"{value!r} follows a later version")
        reached = min(later, default=reached)
    if (shown[-1] if shown else UNSHOWN) != last and (shown or is_due):
        faults.append(f"it ends with {shown[-1] if shown else 'nothing'!r}, and the replicas have {last!r}")
    return faults

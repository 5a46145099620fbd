"""The stage of the demo: the objects that each act gets, and the helpers that all acts share."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from gossipkv.errors import Conflict, NotReady, Unavailable, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from gossipkv.client import blocking
    from gossipkv.demo.editions import Edition
    from gossipkv.demo.outcome import DemoOutcome
    from gossipkv.launcher import Cluster
    from gossipkv.wire.rpc import Value

PATIENCE_S: Final = 900.0  # A bound for a busy machine.  A run that cannot go on usually shows that earlier.
TIMEOUT_MS: Final = int(1000 * PATIENCE_S)  # Latencies are reported and not judged.
POLL_S: Final = 0.05


@final
@dataclass(slots=True)
class Stage:
    """A cluster that is up, the versions of the dataset, the numbers of the run, and `say` for lines to people."""

    cluster: Cluster
    root: Path
    editions: tuple[Edition, Edition]
    outcome: DemoOutcome
    say: Callable[[str], None]

    def until(self, condition: str, is_done: Callable[[], bool]) -> None:
        """Return when `is_done` returns True.

        Raises:
            Unavailable: it did not within `PATIENCE_S`; `condition` is a clause for the message.
        """
        give_up_s = time.monotonic() + PATIENCE_S
        while not is_done():
            if time.monotonic() > give_up_s:
                raise Unavailable(f"the demo has waited {PATIENCE_S:.0f} s in vain until {condition}")
            time.sleep(POLL_S)

    def until_taken(self, condition: str, call: Callable[[], object]) -> None:
        """Repeat a repeatable call until it is answered: a node that was killed may still seem alive.

        Raises:
            Unavailable: it was refused for `PATIENCE_S`.
        """

        def is_taken() -> bool:
            try:
                call()
            except (Conflict, NotReady, Unavailable, Unknown):
                return False
            return True

        self.until(condition, is_taken)


def hosts(client: blocking.Client, table: str) -> tuple[int, Counter[str], bool]:
    """Return the number of the table's partitions, the replicas of each node, and True if none is moving."""
    replicas, is_settled = Counter[str](), True
    partitions: Sequence[Value] = ()
    match client.call("partition_map", table):
        case {"partitions": [*partitions]}:
            for partition in partitions:
                match partition:
                    case {"assignments": [*assignments]}:
                        for assignment in assignments:
                            match assignment:
                                case {"node": str(node), "state": "AVAILABLE"}:
                                    replicas[node] += 1
                                case _:
                                    is_settled = False
    return len(partitions), replicas, is_settled

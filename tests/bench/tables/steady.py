"""`python -m tests.bench.tables.steady TABLE RECORDS ADDRESS ...`: clients that write and read until told to end.

Each client uses the table's map, has a session, and pauses between requests. When its standard input ends, the program
writes one line of JSON: for each request if it was a put, its start (`time.monotonic`), its duration in seconds, and
its error, or ""; and for each written key the last acknowledged number.
"""

from __future__ import annotations

import json
import random
import sys
import threading
from time import monotonic, sleep

from gossipkv.client import blocking
from gossipkv.errors import GossipKVError
from tests.bench import data
from tests.bench.measurement import WrongAnswerError

CLIENTS = 4
KEYS = 501  # Per client; the number is odd, so that all keys are written.
PAUSE_S = 0.005
TIMEOUT_MS = 20_000
WAIT_MS = 5_000

Asked = tuple[bool, float, float, str]


def ask(
    number: int, table: str, records: int, addresses: list[str], is_over: threading.Event
) -> tuple[list[Asked], dict[str, int]]:
    """Put numbers under its own keys, and read them and the initial records."""
    chance, asked, acknowledged = random.Random(number), list[Asked](), dict[str, int]()
    with blocking.Client(addresses[number % len(addresses) :] + addresses, timeout_ms=TIMEOUT_MS) as client:
        handle, session, turn = client.table(table, by_map=True), client.session(), 0
        while not is_over.is_set():
            turn += 1
            key, began_s, failed = f"steady-{number}-{turn % KEYS}", monotonic(), ""
            try:
                if turn % 2:
                    handle.put(key, b"%d" % turn, session=session, wait_ms=WAIT_MS)
                    acknowledged[key] = turn
                else:
                    _read(handle, session, chance, records, acknowledged)
            except GossipKVError as error:
                failed = repr(error)
            asked.append((turn % 2 == 1, began_s, monotonic() - began_s, failed))
            sleep(PAUSE_S)
    return asked, acknowledged


def _read(
    handle: blocking.Table, session: object, chance: random.Random, records: int, acknowledged: dict[str, int]
) -> None:
    """Read an initial record, or one of the client's own. Raises GossipKVError, WrongAnswerError."""
    if acknowledged and chance.random() < 0.5:
        key = chance.choice([*acknowledged])
        found = handle.get(key, session=session, wait_ms=WAIT_MS)
        if found is None or int(found) < acknowledged[key]:
            raise WrongAnswerError(f"{key} was {acknowledged[key]}, and is {found!r}")
        return
    key = data.key_of(chance.randrange(records))
    if handle.get(key, session=session, wait_ms=WAIT_MS) != data.value_of(key):
        raise WrongAnswerError(f"{key!r} has another value")


def main(table: str, records: str, *addresses: str) -> None:
    is_over, found = threading.Event(), list[tuple[list[Asked], dict[str, int]]]()
    threads = [
        threading.Thread(
            target=lambda number=number: found.append(ask(number, table, int(records), [*addresses], is_over))
        )
        for number in range(CLIENTS)
    ]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    is_over.set()
    for thread in threads:
        thread.join()
    if len(found) < CLIENTS:
        raise SystemExit("a client has failed")
    asked = [one for some, _ in found for one in some]
    print(json.dumps([asked, {key: last for _, acknowledged in found for key, last in acknowledged.items()}]))


if __name__ == "__main__":
    main(*sys.argv[1:])

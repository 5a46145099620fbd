"""Clients that make and drop tables in a loop; a separate program, so that it can run at the switch of a network.

    python table_clients.py '{"addresses": [...], "clients": 4, "seed": 1}'     until its standard input ends

Each client asks any node and settles each request: after an answer that leaves it open, the client asks another node
under the same id. Each settled request, and each new state of a register at a node, is a line of JSON on standard
output:

    {"client", "what": "create" or "drop", "name", "end", "table", "tries": [code, ...], "words", "began_s", "ended_s"}
    {"node", "generation", "sequence", "digest"}                                of the catalogue

`end` is `done`, `refused` (it did not happen, and will not), or `open`. Names that begin with `own` belong to one
client each; names that begin with `shared` belong to all.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time

from gossipkv.client import blocking
from gossipkv.errors import Conflict, GossipKVError, ServiceError, TimedOut, Unavailable, Unknown, UnknownDatabase

TIMEOUT_MS = 12_000
OPTIONS = {"kind": "hash", "partitions": 8, "replication": 3}
SHARED = ("shared-a", "shared-b")
SETTLED_S = 90.0  # Time after the end to settle open requests.
POLL_S = 0.3

Told = "dict[str, object]"

is_over = threading.Event()
_saying = threading.Lock()


def say(told: Told) -> None:
    with _saying:
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


class Connections:
    """One connection to each node, made on demand."""

    def __init__(self, addresses: list[str]) -> None:
        self.addresses = addresses
        self._clients: dict[str, blocking.Client] = {}

    def call(self, address: str, method: str, *params: object) -> object:
        """Return a node's answer. Raises GossipKVError; `Unavailable` if nothing was sent."""
        try:
            if address not in self._clients:
                self._clients[address] = blocking.Client([address], timeout_ms=TIMEOUT_MS, follows=False).dial()
        except GossipKVError as error:
            raise NotSent(error.message) from error
        try:
            return self._clients[address].call(method, *params)
        except (Unknown, TimedOut):
            self._clients.pop(address).close()
            raise


class NotSent(Unavailable):
    """There is no connection, so nothing was sent."""


class Client:
    def __init__(self, number: int, addresses: list[str], seed: int) -> None:
        self._number = number
        self._random = random.Random(f"{seed} {number}")
        self._connections = Connections(addresses)

    def run(self) -> None:
        """Make and drop tables of its own, reusing their names, and sometimes a shared table."""
        made = 0
        name = ""
        while not is_over.is_set():
            if self._random.random() < 0.2:
                shared = self._random.choice(SHARED)
                self._settle(self._random.choice(("create", "drop")), shared)
                continue
            if not name:
                made += 1
                name = f"own-{self._number}-{made}"
            end, table = self._settle("create", name)
            if end != "done" or self._random.random() < 0.4:
                name = ""
                continue
            end, _ = self._settle("drop", name, table)
            name = name if end == "done" else ""

    def _settle(self, what: str, name: str, dropped: str | None = None) -> tuple[str, str | None]:
        """Repeat a request until its outcome is known; return it and the table's id; `dropped`: drop only this id."""
        operation = self._random.randbytes(20)
        began_s, give_up_s = time.monotonic(), 0.0
        tries: list[str] = []
        table = words = None
        end = "open"
        while end == "open" and not (give_up_s and time.monotonic() > give_up_s):
            if is_over.is_set() and not give_up_s:
                give_up_s = time.monotonic() + SETTLED_S
            address = self._random.choice(self._connections.addresses)
            try:
                if what == "create":
                    answer = self._connections.call(address, "create_table", name, {**OPTIONS, "operation": operation})
                else:
                    answer = self._connections.call(address, "drop_table", name, {"table": dropped})
                end, table = "done", answer["table"]
                tries.append("OK")
            except NotSent:
                tries.append("NOT_SENT")
            except (Conflict, UnknownDatabase) as error:
                # A drop that was open may have been done, and then the table no longer exists.
                is_done = what == "drop" and isinstance(error, UnknownDatabase) and "UNKNOWN" in tries
                end, words = "done" if is_done else "refused", error.message
                tries.append(error.code)
            except Unknown as error:
                words = error.message
                tries.append("UNKNOWN")
            except ServiceError as error:  # This attempt did nothing; an earlier open one may still take effect.
                words = error.message
                tries.append(error.code)
                if "UNKNOWN" not in tries and "TIMEOUT" not in tries:
                    end = "refused"
            if end == "open":
                time.sleep(self._random.uniform(0.05, 0.3))
        say({
            "client": self._number, "what": what, "name": name, "end": end, "table": table, "tries": tries,
            "words": words, "began_s": began_s, "ended_s": time.monotonic(),
        })  # fmt: skip
        return end, table


def watch(address: str) -> None:
    """Report each change of a node's registers."""
    connections, seen = Connections([address]), {}
    while not is_over.is_set():
        time.sleep(POLL_S)
        try:
            registers = connections.call(address, "metadata_status", None)
        except GossipKVError:
            continue
        for register in registers:
            name = register["table"]
            now = register["generation"], register["sequence"], register["digest"].hex()
            # Tables of one name have separate maps: only the catalogue's digest belongs to one chain.
            if name is None and seen.get(name) != now:
                seen[name] = now
                say({"node": address, "generation": now[0], "sequence": now[1], "digest": now[2]})


def main() -> None:
    told = json.loads(sys.argv[1])
    threads = [threading.Thread(target=watch, args=(address,)) for address in told["addresses"]]
    clients = [Client(number, told["addresses"], told["seed"]) for number in range(told["clients"])]
    threads += [threading.Thread(target=client.run) for client in clients]
    for thread in threads:
        thread.start()
    while os.read(0, 1 << 10):
        pass
    is_over.set()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()

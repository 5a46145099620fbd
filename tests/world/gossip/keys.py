"""Sealed members in a run: a key file on every machine, and an operator who changes the keys during faults.

A change follows `key_ring.py`: *install*, *use*, *remove*, each on every machine before the next step.  The files
change one by one.  A running process reads its file again, a paused one when it resumes, and a stopped one at its next
start.  So a correct change disturbs no member, whatever else happens.

Two promises are checked on the wire: every packet is sealed, and no key seals two packets with one nonce.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, final

from gossipkv.gossip.packets.key_ring import KEY_BYTES, KEY_ID_BYTES, SESSION_BYTES, key
from gossipkv.gossip.packets.prefix import PREFIX_BYTES, SEALED
from gossipkv.gossip.shell.key_file import sealing
from tests.world.scheduler import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from gossipkv.address import Address
    from gossipkv.gossip.packets.key_ring import Key
    from gossipkv.gossip.packets.sealing import Sealing
    from tests.world.gossip.program import Boot
    from tests.world.machine import Machine
    from tests.world.network import Host
    from tests.world.promises import Promises
    from tests.world.world import World

    Ring = tuple[Key, ...]
    Then = Callable[[], None]

EDITED_US = 2 * SECOND  # The time in which the files of all machines are changed.
LOOKED_US = SECOND // 2  # The time between checks that every process has read its file.
MEAN_WAIT_S = 4  # The mean time between the steps of a change.
COUNTER_BYTES = 8
_FORM_AT = 2
_NONCE = slice(PREFIX_BYTES, PREFIX_BYTES + KEY_ID_BYTES + SESSION_BYTES + COUNTER_BYTES)


@final
class Keys:
    """The key files of a world's machines, and the operator who changes them."""

    def __init__(self, world: World, promises: Promises) -> None:
        self._world = world
        self._promises = promises
        self._chance = world.streams["keys"]
        self._first: Ring = (self._draw(),)
        self._files: dict[str, Ring] = {}
        self._running: dict[str, Sealing] = {}  # The sealing of each machine's latest process.
        self._nonces: set[bytes] = set()  # Includes the id of the key.
        world.network.tap(self._sent)

    def sealing(self, boot: Boot) -> Sealing:
        session = self._world.streams[f"session/{boot.name}"].randbytes(SESSION_BYTES)
        made = self._running[boot.name] = sealing(self._file(boot.name), session)
        return made

    def begin(self) -> None:
        """Change the keys from time to time."""
        self._later(partial(self._install, self._first[0]))

    def _draw(self) -> Key:
        return key(self._chance.randbytes(KEY_BYTES))

    def _file(self, name: str) -> Ring:
        return self._files.get(name, self._first)

    def _later(self, step: Then) -> None:
        self._world.scheduler.after(int(self._chance.expovariate(1 / MEAN_WAIT_S) * SECOND), step)

    def _install(self, old: Key) -> None:
        new = self._draw()
        self._everywhere((old, new), partial(self._later, partial(self._use, old, new)))

    def _use(self, old: Key, new: Key) -> None:
        self._everywhere((new, old), partial(self._later, partial(self._remove, new)))

    def _remove(self, new: Key) -> None:
        self._everywhere((new,), partial(self._changed, new))

    def _changed(self, new: Key) -> None:
        self._world.struck["keys_changed"] += 1
        self._later(partial(self._install, new))

    def _everywhere(self, ring: Ring, then: Then) -> None:
        """Change all files to `ring`, and continue once no process uses another."""
        for machine in self._world.machines:
            self._world.scheduler.after(int(self._chance.random() * EDITED_US), partial(self._edit, machine, ring))
        self._world.scheduler.after(EDITED_US, partial(self._wait, ring, then))

    def _edit(self, machine: Machine, ring: Ring) -> None:
        self._files[machine.name] = ring
        machine.when_free(partial(self._read, machine))

    def _read(self, machine: Machine) -> None:
        self._running[machine.name].use(self._file(machine.name))

    def _wait(self, ring: Ring, then: Then) -> None:
        ids = tuple(one.id for one in ring)
        up = [machine for machine in self._world.machines if machine.is_up]
        if all(tuple(key.id for key in self._running[machine.name].keys) == ids for machine in up):
            then()
        else:
            self._world.scheduler.after(LOOKED_US, partial(self._wait, ring, then))

    def _sent(self, source: Host, _to: Address, packet: bytes) -> None:
        if packet[_FORM_AT] != SEALED:
            self._promises.found("everything_is_sealed", source, "a plain packet")
        nonce = packet[_NONCE]
        if nonce in self._nonces:
            self._promises.found("no_nonce_twice", source, f"a second packet under {nonce.hex()}")
        self._nonces.add(nonce)

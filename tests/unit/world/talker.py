"""A rig as small as connections and disks need to be shown: it writes down what it hears, and says what a test says."""

from __future__ import annotations

from tests.world.connections import Connections, Identity
from tests.world.rig import NEVER_MS
from tests.world.scheduler import MS
from tests.world.world import World


class Talker:
    """It hears of connections; `answers`: it sends each message back."""

    def __init__(self, machine, connections):
        self.machine, self.connections = machine, connections
        self.connections.listen(machine, self)
        self.said = []  # What it heard, life after life: (life, what, …).
        self.answers = False
        self.wakes_at_ms = NEVER_MS

    @property
    def identity(self):
        return Identity(self.machine.name.encode(), self.machine.number, self.machine.life)

    def boot(self):
        self.machine.began(self)

    def end(self):
        pass

    def act(self, *, now_ms):
        return NEVER_MS

    wake = act

    def receive(self, packet, source, *, now_ms):
        return NEVER_MS

    def poke(self, *, now_ms):
        pass

    def join(self, addresses, *, now_ms):
        pass

    def leave(self, *, now_ms):
        pass

    def on_connected(self, peer):
        self.said.append((self.machine.life, "connected", peer))

    def on_message(self, peer, message):
        self.said.append((self.machine.life, "message", peer, message))
        if self.answers:
            self.connections.answer(self.machine, peer, message)

    def on_broken(self, address, peer):
        self.said.append((self.machine.life, "broken", peer))

    # What a test asks.

    def send(self, other, message):
        self.connections.send(self.machine, other.machine.address, message)

    def messages(self):
        return [said[3] for said in self.said if said[1] == "message"]

    def kinds(self):
        return [said[1] for said in self.said]


def talkers(count=2, seed=1):
    """A world of so many, all up; the world and their rigs."""
    world = World(seed)
    connections = Connections(world)
    for number in range(count):
        world.add(f"t{number}", lambda machine: Talker(machine, connections)).start()
    world.run(50 * MS)
    return world, *(machine.rig for machine in world.machines)

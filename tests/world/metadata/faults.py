"""Faults of a run: crashes, cuts, lost messages, forces, and disks that are slow, full, broken or lost.

A disk is lost for good only where the remaining acceptors are a quorum of every value that this one has accepted.
Otherwise only a force would bring the register back; forces strike where two of three are cut off from the third.
"""

from __future__ import annotations

import contextlib
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, final

import trio

from gossipkv.errors import GossipKVError
from gossipkv.register.configuration import AcceptorId
from gossipkv.register.messages import REGISTER_BYTES
from gossipkv.register.proposal import ChangeEnd
from gossipkv.register.seen import POSITION, SeenPositions
from gossipkv.register.space import MAP, RECORD
from tests.world.metadata.chance import happens
from tests.world.metadata.deciding_node import CATALOGUE
from tests.world.metadata.store import Disk

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from gossipkv.register.configuration import Acceptors
    from gossipkv.register.proposal import ProposalOutcome
    from tests.world.metadata.deciding_node import Life, Node
    from tests.world.metadata.network import Network
    from tests.world.metadata.witness import Witness

MIN_FORCED: Final = 3  # The fewest acceptors of a register that is forced.
FORCES: Final = 5  # An operator gives up after this many.
FORCE_S: Final = 13.0
FOUND_S: Final = 10.0  # The time in which a store that was put back is found; every node reads the catalogue every 3 s.
RARE: Final = ("lose a disk", "put a disk back", "damage a map", "force")


@final
class Faults:
    def __init__(self, nodes: Sequence[Node], network: Network, witness: Witness, random: Random) -> None:
        self._nodes = nodes
        self._network = network
        self._witness = witness
        self._random = random
        self._strikes: dict[str, Callable[[Node], Awaitable[None]]] = {
            "crash": self._crash,
            "stay down": self._stay_down,
            "cut": partial(self._cut, one_way=False),
            "cut one way": partial(self._cut, one_way=True),
            "lossy network": self._change_loss,
            "slow network": self._change_delay,
            "slow disk": self._change_disk,
            "full disk": self._fill,
            "broken disk": self._break,
            "crash around syncs": self._change_crashes,
            "lie": self._lie,
            "lose a disk": self._lose,
            "put a disk back": self._put_back,
            "damage a map": self._damage,
            "force": self._force,
        }
        self.kinds = random.sample([kind for kind in self._strikes if kind not in RARE], random.randint(2, 6))
        self.kinds += [kind for kind in RARE if happens(random, 0.3)]
        self._done: set[str] = set()  # Faults that strike once and have done so.
        self._forced: tuple[bytes, AcceptorId] | None = None  # A force that has not ended.
        self._gone_back: Node | None = None
        self._copies: list[tuple[Node, int, dict[bytes, bytes]]] = []  # Copies of disks, with the ids of their stores.

    async def run(self, *, pause_s: float) -> None:
        while True:
            await trio.sleep(self._random.expovariate(1 / pause_s))
            kind = self._random.choice(self.kinds)
            self._witness.counts[f"strikes: {kind}"] += 1
            await self._strikes[kind](self._random.choice(self._nodes))

    async def _crash(self, node: Node) -> None:
        node.crash()

    async def _stay_down(self, node: Node) -> None:
        node.stop()
        await trio.sleep(self._random.uniform(0.5, 4))
        node.start()

    async def _cut(self, node: Node, *, one_way: bool) -> None:
        others = [other.uuid for other in self._nodes if other is not node]
        cut = {(node.uuid, other) for other in self._random.sample(others, self._random.randint(1, len(others)))}
        self._network.cuts |= cut if one_way else cut | {(to, source) for source, to in cut}
        await trio.sleep(self._random.uniform(0.5, 3))
        self._network.cuts.clear()

    async def _change_loss(self, node: Node) -> None:
        del node
        self._network.loss = self._random.uniform(0.02, 0.3)

    async def _change_delay(self, node: Node) -> None:
        del node
        self._network.delay_s = self._random.choice((0.001, 0.01, 0.1))

    async def _change_disk(self, node: Node) -> None:
        node.mood.slow_s = self._random.choice((0, 0.01, 0.1, 0.5))

    async def _change_crashes(self, node: Node) -> None:
        node.crashes = self._random.choice((0, 0.02, 0.1))

    async def _lie(self, node: Node) -> None:
        node.lies = not node.lies

    async def _fill(self, node: Node) -> None:
        node.mood.is_full = True
        await trio.sleep(self._random.uniform(0.2, 2))
        node.mood.is_full = False

    async def _break(self, node: Node) -> None:
        node.mood.fails = True
        await trio.sleep(self._random.uniform(0.05, 1))
        node.mood.fails = False
        node.crash()

    async def finish(self) -> None:
        """Replace a disk that was put back, once it is found; repeat a force that failed."""
        await self._replace()
        await self._force_again()

    async def _replace(self) -> None:
        node = self._gone_back
        if node is None:
            return
        with trio.move_on_after(FOUND_S):
            while node.life is None or not node.life.metadata.registers.behind:
                await trio.sleep(0.1)
        if node.life is None or not node.life.metadata.registers.behind:
            self._witness.found("behind", f"{node.uuid.hex()[:8]} does not know that its store is an older copy")
        self._give_disk(node)

    async def _force_again(self) -> None:
        """Repeat a force, as its operator would: the register may be stuck otherwise."""
        if self._forced is None:
            return
        register, survivor = self._forced
        node = next(node for node in self._nodes if node.uuid == survivor.node)

        async def force(life: Life) -> ProposalOutcome:
            top = self._witness.chains[register].top
            assert top is not None
            return await life.metadata.registers.force(register, top.value.acceptors.everyone - self._witness.lost)

        for _ in range(FORCES):
            if node.life is not None:
                with contextlib.suppress(GossipKVError):
                    outcome = await node.life.have(force)
                    self._witness.counts[f"repeated force {outcome.end.name}"] += 1
                    # UNKNOWN is tried again; otherwise the force is done or not needed.
                    if outcome.end is not ChangeEnd.UNKNOWN:
                        return
            await trio.sleep(1)

    def heal(self) -> None:
        self._network.heal()
        for node in self._nodes:
            node.mood.is_full, node.mood.fails, node.mood.slow_s, node.crashes, node.lies = (
                False,
                False,
                0.0,
                0.0,
                False,
            )
            node.start()
            if node.life is not None and node.life.store.closed is not None:
                node.crash()

    async def _lose(self, node: Node) -> None:
        """Lose a node's disk, once, if no data is lost for good."""
        # An acceptor change under way may be about to rely on the disk.
        if self._witness.moves or "lose a disk" in self._done:
            return
        gone = AcceptorId(node.uuid, node.disk.store)
        if not all(acceptors.is_quorum(acceptors.everyone - {gone}) for acceptors in self._sets_with(node)):
            return
        # The remaining nodes may be the only ones that can detect a disk that went back.
        self._done |= {"lose a disk", "put a disk back"}
        self._witness.counts["a disk is lost"] += 1
        self._witness.lost.add(gone)
        self._give_disk(node)

    def _give_disk(self, node: Node) -> None:
        node.disk = Disk(node.uuid, self._random.getrandbits(63) + 1)
        node.may_found = False
        self._witness.disks[AcceptorId(node.uuid, node.disk.store)] = node.disk
        node.crash()

    def _sets_with(self, node: Node) -> list[Acceptors]:
        """Return the acceptors of every accepted value in the registers of which a node has a record."""
        return [
            value.acceptors
            for register, chain in self._witness.chains.items()
            if RECORD + register in node.disk.records
            for value in chain.values.values()
        ]

    async def _put_back(self, node: Node) -> None:
        """Copy a disk, and put a copy of some disk back, once, where that is allowed."""
        if self._witness.moves or "put a disk back" in self._done:
            return
        for other, store, records in self._random.sample(self._copies, len(self._copies)):
            if store == other.disk.store and self._may_go_back(other, records):
                self._go_back(other, records)
                return
        self._copies.append((node, node.disk.store, dict(node.disk.records)))

    def _may_go_back(self, node: Node, records: Mapping[bytes, bytes]) -> bool:
        """Return True if nothing is lost with the copy, and each quorum with it has a member that knows better."""
        gone = AcceptorId(node.uuid, node.disk.store)
        past = SeenPositions(gone, [(key, value) for key, value in records.items() if key[:1] == POSITION], Random(0))
        knowing = {
            who
            for who, seen in self._witness.sightings.items()
            if who != gone and any(one == gone and not past.has_been(position) for one, position in seen)
        }
        sets = [each for each in self._sets_with(node) if gone in each.everyone]
        return bool(sets) and all(
            each.is_quorum(each.everyone - {gone}) and not each.is_quorum(each.everyone - knowing) for each in sets
        )

    def _go_back(self, node: Node, records: Mapping[bytes, bytes]) -> None:
        gone = AcceptorId(node.uuid, node.disk.store)
        self._done |= {"lose a disk", "put a disk back"}
        self._witness.counts["a disk is put back"] += 1
        self._witness.lost.add(gone)
        self._witness.put_back.add(gone)
        node.may_found = False
        node.crash()
        node.disk.records = dict(records)
        self._witness.goes_back(node.disk)
        self._gone_back = node

    async def _damage(self, node: Node) -> None:
        """Damage an entry of a map on the disk of a node that is down, once, if the other acceptors have the map."""
        gone, witness = AcceptorId(node.uuid, node.disk.store), self._witness
        if witness.moves or self._done & {"lose a disk", "damage a map"}:
            return
        if not all(acceptors.is_quorum(acceptors.everyone - {gone}) for acceptors in self._sets_with(node)):
            return
        node.stop()
        await trio.sleep(self._random.uniform(0.1, 1))
        start = len(MAP) + REGISTER_BYTES
        keys = [
            key
            for key in sorted(node.disk.records)
            if key[: len(MAP)] == MAP and len(key) > start and witness.base(gone, key[len(MAP) : start]).entries
        ]
        if keys and node.disk.store == gone.store and "lose a disk" not in self._done and not witness.moves:
            self._done |= {"lose a disk", "put a disk back", "damage a map"}
            witness.counts["a map is damaged"] += 1
            key = self._random.choice(keys)
            record = bytearray(node.disk.records[key])
            record[self._random.randrange(len(record))] ^= 1 << self._random.randrange(8)
            node.disk.records[key] = bytes(record)
            witness.damages(node.disk, key[len(MAP) : start])
        node.start()

    async def _force(self, node: Node) -> None:
        """Cut one acceptor of three off and force the register to it, once; then reconnect all."""
        if "force" in self._done:
            return
        for register in sorted(self._witness.chains):
            top = self._witness.chains[register].top
            if register == CATALOGUE or top is None or top.map.ended or len(top.value.acceptors.new) < MIN_FORCED:
                continue
            survivor = self._random.choice(top.value.acceptors.new)
            node = next(node for node in self._nodes if node.uuid == survivor.node)
            others = [other.uuid for other in self._nodes if other is not node]
            self._done.add("force")
            self._witness.chains[register].is_forced = True
            self._network.cuts |= {(node.uuid, other) for other in others} | {(other, node.uuid) for other in others}
            await trio.sleep(self._random.uniform(0.1, 1))
            life = node.life
            if life is not None:

                async def force(
                    life: Life, register: bytes = register, survivor: AcceptorId = survivor
                ) -> ProposalOutcome:
                    return await life.metadata.registers.force(register, [survivor])

                self._forced = register, survivor
                known = self._witness.base(survivor, register).sequence
                with trio.move_on_after(FORCE_S), contextlib.suppress(GossipKVError):
                    outcome = await life.have(force)
                    self._witness.counts[f"forced {outcome.end.name}"] += 1
                    self._forced = None if outcome.end is ChangeEnd.DONE else self._forced
                    top = self._witness.chains[register].top
                    if outcome.end is ChangeEnd.DONE and (top is None or top.map.sequence < known):
                        self._witness.found("one_chain", f"a force of {register.hex()[:8]} lost transaction {known}")
            self._network.cuts.clear()
            return

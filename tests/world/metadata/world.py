"""One run: nodes decide under faults; then the world heals, and all promises must hold soon after.

Everything follows from the seed.  `run` returns the violations and counts; only a defect of the code under test raises.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Final, NamedTuple
from unittest import mock

import trio

from gossipkv.errors import GossipKVError
from gossipkv.register import edits, maps, snapshot, state
from gossipkv.register.configuration import AcceptorId, Acceptors
from gossipkv.register.messages import REGISTER_BYTES
from gossipkv.register.metadata import operations as rules
from gossipkv.register.metadata import transactions
from gossipkv.register.metadata.operations import LIFE, OPERATION_ID_BYTES, Operation, OperationOutcome
from gossipkv.register.space import MAP
from tests.world.logs import capture_logs
from tests.world.metadata.chance import happens
from tests.world.metadata.clients import Clients, burst_of
from tests.world.metadata.deciding_node import CATALOGUE, TEND_S, Life, Node
from tests.world.metadata.faults import Faults
from tests.world.metadata.network import Network
from tests.world.metadata.store import Disk
from tests.world.metadata.witness import Witness
from tests.world.nodes import scheduling
from tests.world.streams import Streams

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator
    from random import Random

    from gossipkv.register.metadata.known import KnownMap
    from gossipkv.register.metadata.operations import OperationAnswer
    from tests.world.metadata.witness import Violation

FAULTS_S: Final = 12.0
LIVE_S: Final = 12.0  # After healing: asking a node that crashed at that moment takes five seconds.
STEP_S: Final = 0.1
LEARNED_S: Final = 1.5  # All nodes learn the last commit by then, also if one of them is frozen.
SOON_S: Final = 60.0  # Unneeded records are gone by then, after the 64th transaction of the catalogue.
LIMIT_S: Final = 600.0


class Run(NamedTuple):
    seed: int
    violations: list[Violation]
    counts: Counter[str]

    @property
    def command(self) -> str:
        return f"python -m tests.world --metadata --seed {self.seed}"


def run(seed: int) -> Run:
    """Run a seed; errors carry a note with the command that repeats it."""
    witness = Witness(CATALOGUE)
    try:
        with capture_logs(), small_limits(Streams(seed)["limits"]):
            scheduling.run(lambda: _world(seed, witness), seed, limit_s=LIMIT_S)
    except BaseException as error:
        error.add_note(f"to replay: {Run(seed, [], witness.counts).command}")
        raise
    return Run(seed, witness.violations, witness.counts)


@contextlib.contextmanager
def small_limits(random: Random) -> Iterator[None]:
    """Draw limits that maps of a few entries reach: of histories, values, snapshots and transactions."""
    with contextlib.ExitStack() as stack:
        for module, name, limits in (
            (state, "MAX_HISTORY", (1, 4, 16, 4096)),
            (state, "MAX_TAIL_BYTES", (400, 64 << 10)),
            (edits, "MAX_EDITS_BYTES", (300, 384 << 10)),
            (snapshot, "MAX_PAGE_BYTES", (200, 256 << 10)),
            (maps, "MAX_ANSWER_BYTES", (300, 1 << 20)),
            (maps, "FEW_BYTES", (100, 1 << 20)),
            (transactions, "MAX_OPERATIONS", (3, 512)),
            (rules, "GROUP_BYTES", (60, 256 << 10)),
            (rules, "KEPT", (LIFE + 6, 4096)),
        ):
            stack.enter_context(mock.patch.object(module, name, random.choice(limits)))
        yield


async def _world(seed: int, witness: Witness) -> None:
    streams = Streams(seed)
    random = streams["world"]
    async with trio.open_nursery() as nursery:
        network = Network(streams["network"], nursery)
        nodes = []
        for number in range(random.choice((3, 3, 4, 5, 7))):
            uuid = random.randbytes(16)
            disk = Disk(uuid, random.getrandbits(63) + 1)
            witness.disks[AcceptorId(uuid, disk.store)] = disk
            nodes.append(Node(uuid, disk, network, witness, streams[f"node/{number}"]))
        nodes[0].may_found = True
        for node in nodes:
            node.others = [other.uuid for other in nodes if other is not node]
            nursery.start_soon(node.run)
        clients = Clients(nodes, witness, streams["clients"], streams["ids"])
        faults = Faults(nodes, network, witness, streams["faults"])
        async with trio.open_nursery() as striking:
            for _ in range(random.randint(2, 4)):
                striking.start_soon(_run_clients, clients, random.choice((0.1, 0.2, 0.4)))
            if happens(random, 0.9):
                striking.start_soon(_run_faults, faults, random.choice((0.3, 1.0)))
            await trio.sleep(FAULTS_S)
            striking.cancel_scope.cancel()
        faults.heal()
        await faults.finish()
        await _calm(nodes, network, clients, witness, random, is_long=happens(random, 0.2))
        witness.counts["messages"] += network.messages
        nursery.cancel_scope.cancel()


async def _run_clients(clients: Clients, pause_s: float) -> None:
    await clients.run(pause_s=pause_s)


async def _run_faults(faults: Faults, pause_s: float) -> None:
    await faults.run(pause_s=pause_s)


async def _calm(
    nodes: list[Node], network: Network, clients: Clients, witness: Witness, random: Random, *, is_long: bool
) -> None:
    """Check the promises that must hold soon after healing."""
    await _until(lambda: _is_right(nodes, witness), LIVE_S)
    check_right(nodes, witness)
    await _replace_lost(nodes, clients, witness, random)
    for register in _registers(witness):
        begun_s = trio.current_time()
        is_done = False
        while not is_done and trio.current_time() < begun_s + LIVE_S:
            life = random.choice(nodes).life
            if life is not None:
                is_done = await _operate(life, clients, witness, register, random)
            await trio.sleep(0.05)
            is_done |= witness.is_ended(register)
        if not is_done:
            witness.found("live", f"{register.hex()[:8]} takes no operation {LIVE_S} s after all was healed")
    await _check_learned(nodes, witness)
    await _change_acceptors(nodes, witness, random)
    frozen = random.choice(nodes)
    network.frozen.add(frozen.uuid)
    others = [node for node in nodes if node is not frozen]
    await _until(lambda: not _behind(others, witness), LEARNED_S)
    for register in _registers(witness):
        life = random.choice(others).life
        if life is not None and await _operate(life, clients, witness, register, random):
            await _check_learned(others, witness, " while another node is frozen")
            witness.counts["learned while one is frozen"] += 1
    network.heal()
    await _until(lambda: not _behind(nodes, witness), LIVE_S)
    named = {CATALOGUE, *(table.id for table in witness.tables().values())}
    for who, register in sorted(of for of in witness.damaged if of[1] in named):
        witness.found("damaged", f"{who} has replaced its damaged map of {register.hex()[:8]} not yet")
    if is_long:
        await _check_gone(nodes, clients, witness, random)
    witness.check_told()


async def _replace_lost(nodes: list[Node], clients: Clients, witness: Witness, random: Random) -> None:
    """Let nodes with lost disks take their own places on all registers, until they have."""

    def left() -> list[bytes]:
        tops = [(register, witness.chain(register).top) for register in _registers(witness)]
        return [register for register, top in tops if top is not None and top.value.acceptors.everyone & witness.lost]

    until_s = trio.current_time() + LIVE_S
    while left() and trio.current_time() < until_s:
        life = random.choice(nodes).life
        for node in nodes:
            if life is not None and any(one.node == node.uuid for one in witness.lost):
                with contextlib.suppress(GossipKVError):
                    await clients.replace_all(life, node, node)
        await trio.sleep(STEP_S)
    for register in left():
        witness.found("replaced", f"whoever has lost its disk decides on {register.hex()[:8]} still")


async def _change_acceptors(nodes: list[Node], witness: Witness, random: Random) -> None:
    """Change the acceptors of each register, as the last that is decided, and check that all nodes learn it."""
    for register in _registers(witness):
        top, node = witness.chain(register).top, random.choice(nodes)
        strangers = [one for one in nodes if top and one.uuid not in {each.node for each in top.value.acceptors.new}]
        if top is None or top.map.ended or not strangers or node.life is None:
            continue
        stay = random.sample(top.value.acceptors.new, len(top.value.acceptors.new) - 1)
        comer = random.choice(strangers)

        async def change(
            life: Life, register: bytes = register, stay: list[AcceptorId] = stay, comer: Node = comer
        ) -> None:
            await life.catalogue.reconfigure(register, [*stay, await life.invite(comer.uuid)])

        with contextlib.suppress(GossipKVError):
            await node.life.have(change)
            witness.counts["acceptors changed in a quiet time"] += 1
            await _check_learned(nodes, witness, " after a change of acceptors")


async def _check_learned(nodes: list[Node], witness: Witness, when: str = "") -> None:
    """Check that all nodes know what was committed some time ago."""
    await _until(lambda: not _behind(nodes, witness), LEARNED_S)
    for what in _behind(nodes, witness, before_s=trio.current_time() - LEARNED_S):
        witness.found("learned", f"{what}{when}")


def _registers(witness: Witness) -> list[bytes]:
    return [CATALOGUE, *(table.id for _, table in sorted(witness.tables().items()))]


def _behind(nodes: list[Node], witness: Witness, *, before_s: float = math.inf) -> list[str]:
    """Return the nodes that do not know the last commit of a register, if that was before a time."""
    behind = []
    for register in _registers(witness):
        top = witness.chain(register).top
        for node in nodes:
            known = None if node.life is None else node.life.metadata.known.get(register)
            if top is None or top.map.ended or top.at_s > before_s:
                continue
            is_old = known is None or (known.generation, known.sequence) < top.place
            if is_old or (known is not None and known.acceptors.new != top.value.acceptors.new):
                behind.append(f"{node.uuid.hex()[:8]} is behind of {register.hex()[:8]}")
    return behind


async def _until(is_so: Callable[[], bool], limit_s: float) -> None:
    """Return when `is_so` is true, or after the time limit."""
    for _ in range(int(limit_s / STEP_S)):
        if is_so():
            return
        await trio.sleep(STEP_S)


def _is_right(nodes: list[Node], witness: Witness) -> bool:
    try:
        return all(node.life is not None and node.life.catalogue.tables() == witness.tables() for node in nodes)
    except GossipKVError:
        return False


def check_right(nodes: list[Node], witness: Witness) -> None:
    """Check that all nodes show the existing tables."""
    for node in nodes:
        life = node.life
        try:
            shown = None if life is None else life.catalogue.tables()
        except GossipKVError as error:
            witness.found("live", f"{node.uuid.hex()[:8]} does not show its tables: {error.message}")
            continue
        if shown != witness.tables():
            names = None if shown is None else {name: table.id.hex()[:8] for name, table in shown.items()}
            right = {name: table.id.hex()[:8] for name, table in witness.tables().items()}
            witness.found("live", f"{node.uuid.hex()[:8]} shows {names}, and the tables are {right}")


async def _operate(life: Life, clients: Clients, witness: Witness, register: bytes, random: Random) -> bool:
    hints = {table.id: Acceptors.of(table.acceptors) for table in witness.tables().values()}

    async def look(life: Life) -> KnownMap:
        return life.metadata.known.get(register) or await life.metadata.quorum_read(register, hints.get(register))

    try:
        known = await life.have(look)
        if register == CATALOGUE:
            nobody = (b"nobody", bytes(16))
            operations = [Operation(random.randbytes(OPERATION_ID_BYTES), known.config, "remove_table", 1, nobody)]
        else:
            operations = burst_of(1, life.metadata.view(register), known.config, random)
    except GossipKVError:
        return False
    witness.wanted |= {one.id: [one] for one in operations}
    answers: list[OperationAnswer] = await clients.transact(life, register, operations)
    return any(answer.outcome is OperationOutcome.DONE for answer in answers)


async def _check_gone(nodes: list[Node], clients: Clients, witness: Witness, random: Random) -> None:
    """Check that unneeded records are deleted in time."""
    await trio.sleep(3 * TEND_S)  # By then each node has seen which tables are not named.
    until = _catalogue_sequence(witness) + 2 * LIFE + 2
    while _catalogue_sequence(witness) <= until:
        life = random.choice(nodes).life
        if life is not None:
            await _operate(life, clients, witness, CATALOGUE, random)
    await _until(lambda: not left_over(nodes, witness), SOON_S)
    for what in left_over(nodes, witness):
        witness.found("gone", what)
    witness.counts["long"] += 1


def _catalogue_sequence(witness: Witness) -> int:
    top = witness.chain(CATALOGUE).top
    return 0 if top is None else top.map.sequence


def left_over(nodes: list[Node], witness: Witness) -> list[str]:
    """Return the leftover maps of unnamed tables.

    A register that was ended and then forced lost only its name, and stays.  Of one that was ended after a force, an
    acceptor that has not heard of the force keeps the end.
    """
    named = {CATALOGUE, *(table.id for table in witness.tables().values())}
    forced = {register for register, chain in witness.chains.items() if chain.top is not None and chain.top.place[0]}
    named |= {register for register in forced if not witness.is_ended(register)}
    start = len(MAP) + REGISTER_BYTES
    left = {
        (node.uuid, key[len(MAP) : start])
        for node in nodes
        for key in node.disk.records
        if key[: len(MAP)] == MAP and key[len(MAP) : start] not in named
        if len(key) > start or key[len(MAP) : start] not in forced
    }
    return [f"{node.hex()[:8]} has records of {register.hex()[:8]} still" for node, register in sorted(left)]

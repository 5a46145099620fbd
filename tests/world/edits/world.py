"""A discrete world of one register that holds a map: hosts over a network, a clock and disks that follow from a seed.

    World(seed).run()   raises BrokenError if a promise is broken

First anything may fail: messages are lost, repeated and reordered, hosts crash, and links are cut one way. In some runs
a majority is lost, forced, and back. In the others, disks are lost, or put back to older copies: under another id, or
under their own if each quorum with such a disk has a node that has seen more of it. Then the world heals, but for a
minority of acceptors. Something new must be decided on the same chain, and show on every live node within a second,
though one acceptor is frozen. Histories, tails and pages are so small that runs go past all of them.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple, cast
from unittest.mock import patch

from gossipkv.register import snapshot, state
from gossipkv.register.ballot import ZERO
from gossipkv.register.configuration import Acceptors, Value
from gossipkv.register.edits import MapValue
from gossipkv.register.force import Force
from gossipkv.register.messages import RegisterRequest, RequestKind, decode_record
from gossipkv.register.proposal import ChangeEnd
from gossipkv.register.proposer import NEVER_MS
from tests.world.edits.chain import BrokenError, Chain
from tests.world.edits.disk import Disk, StoredDisk
from tests.world.edits.host import RECORD, REGISTER, Host, acceptor_of_node, node_of, positions_on
from tests.world.edits.operations import DONE, Operation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gossipkv.register.ballot import Ballot
    from gossipkv.register.configuration import AcceptorId
    from gossipkv.register.messages import AcceptorRecord
    from gossipkv.register.proposal import ProposalOutcome
    from gossipkv.register.proposer import Proposer
    from gossipkv.register.state import Base

    Core = Proposer | Force

MAX_HISTORY: Final = 3
MAX_TAIL_BYTES: Final = 60
MAX_PAGE_BYTES: Final = 40
LOST, REPEATED = 0.04, 0.05  # The shares of messages.
POLL_MS: Final = 500  # Each node polls so often, another node each time.
READ_MS: Final = 10_000  # Each node reads by a quorum so often.
HINT_MS: Final = 300
PROBE_MS: Final = 200
TICK_MS: Final = 100
PROBED: Final = 9  # The entry that operations write after healing.
HEALED_MS: Final = 30_000
SETTLED_MS: Final = 2_000
SHOWN_MS: Final = 1_100  # A decision shows on every live node after a second (P6).
MAX_DELIVERIES: Final = 20_000


@contextmanager
def small_limits() -> Iterator[None]:
    with ExitStack() as stack:
        for module, name, limit in (
            (state, "MAX_HISTORY", MAX_HISTORY),
            (state, "MAX_TAIL_BYTES", MAX_TAIL_BYTES),
            (snapshot, "MAX_PAGE_BYTES", MAX_PAGE_BYTES),
        ):
            stack.enter_context(patch.object(module, name, limit))
        yield


class Message(NamedTuple):
    """A call of `on_<kind>` at the target's process."""

    kind: str
    source: int
    target: int
    arguments: tuple[object, ...]


@dataclass(slots=True, eq=False)
class Node:
    """A node: its disk, and its process while it is up."""

    number: int
    store: int = 1  # The id of the store on the disk.
    disk: Disk = field(default_factory=Disk)
    host: Host | None = None
    cuts: set[int] = field(default_factory=set)  # Nodes that its messages do not reach.
    is_dead: bool = False  # For good.
    is_frozen: bool = False

    @property
    def me(self) -> AcceptorId:
        return acceptor_of_node(self.number, self.store)


class World:
    def __init__(self, seed: int, *, nodes: int = 0, founders: Iterable[int] = (), stored: bool = False) -> None:
        """`nodes`, `founders`: drawn unless given; `stored`: production's store is under the disks."""
        chance = self.random = Random(seed)
        self.now_ms = 0
        self.net: list[Message] = []
        self.chain = Chain()
        self.nodes = [Node(number) for number in range(nodes or chance.choice((3, 4, 5)))]
        for node in self.nodes if stored else ():
            node.disk = StoredDisk(Random(f"{seed}/{node.number}"))
        first = [*founders] or [*range(chance.choice((1, 3, 3)))]
        self.founders = Acceptors.of(map(acceptor_of_node, first))
        self.newer = set(range(chance.randint(1, len(self.nodes))))  # Nodes that know all operations.
        self.is_calm = False
        self.forces: list[ChangeEnd] = []
        self.operations: list[Operation] = []
        self._left, self._moves = chance.choice((12, 30, 60)), chance.choice((0, 3, 6))
        self._faults = chance.choice((0.004, 0.012, 0.02))
        self._disasters = chance.choice((0, 0, 0, 1, 2))
        self.struck: Counter[str] = Counter()
        self.gone_back: Node | None = None  # A node whose disk is an older copy under the same id.
        self._copies: list[tuple[Node, int, dict[bytes, bytes]]] = []  # Copies of disks, with the ids of their stores.
        self._values: dict[Ballot, Value] = {}  # All values that acceptors were asked to accept.
        self._hints, self._ends = True, not self._disasters and chance.random() < 0.25
        self._bases: dict[int, Base | None] = {}
        for node in self.nodes:
            self.start(node)
        for number in first:
            self._found(number)

    def _found(self, number: int) -> None:
        host, value = self.host(number), Value(self.founders, MapValue().encode())
        request = RegisterRequest(RequestKind.CREATE, REGISTER, host.me, 0, ZERO, value)
        host.on_ask(number, None, request, {})
        host.sync(len(host.disk.appended))

    # -- hosts ---------------------------------------------------------------------------------------------------------

    def host(self, number: int) -> Host:
        host = self.nodes[number].host
        assert host is not None, number
        return host

    def hosts(self) -> list[Host]:
        """Return the processes that are up and not frozen."""
        return [node.host for node in self.nodes if node.host is not None and not node.is_frozen]

    def start(self, node: Node) -> None:
        node.host = Host(self, node.number, node.disk)
        base = node.host.map.base
        size_bytes = 0 if base is None else sum(len(key) + len(record) for key, record in base.entries.scan())
        if not node.host.map.check() or (base is not None and not base.ended and base.size_bytes != size_bytes):
            raise BrokenError(f"the base on the disk of node {node.number} does not have its digest, or its size")
        self._bases[node.number] = None
        self.watch(node.host)

    def crash(self, node: Node) -> None:
        """Stop a process; its disk keeps all batches, or only the first ones."""
        unsynced = len(node.disk.appended)
        node.disk.crash(unsynced if self.random.random() < 0.5 else self.random.randint(0, unsynced))
        node.host = None

    def watch(self, host: Host) -> None:
        """Check the base of a process."""
        before, base = self._bases.get(host.number), host.map.base
        if base is None or base is before:
            return
        if before is not None and base.place < before.place:
            raise BrokenError(f"the base of node {host.number} fell from {before.place} to {base.place}")
        self._bases[host.number] = base
        self.chain.reach(host.number, base)

    def tell(self, generation: int, operation: Operation, outcome: str) -> None:
        self.chain.tell(generation, operation, outcome)

    # -- the network ---------------------------------------------------------------------------------------------------

    def send(self, host: Host, target: int, kind: str, *arguments: object) -> None:
        self.net.append(Message(kind, host.number, target, arguments))

    def ask(self, host: Host, core: Core, request: RegisterRequest) -> None:
        """Send a request of a proposer or a force to an acceptor."""
        if isinstance(core, Force) and request.value is not None and request.ballot is not None:
            survivors = [self.nodes[node_of(acceptor)].host for acceptor in request.value.acceptors.new]
            known = [survivor.map.base for survivor in survivors if survivor is not None]
            self.chain.force(request.ballot, request.value, [base for base in known if base is not None])
        to, ballot, value = request.to, request.ballot, request.value
        self._check_generation(host, core, request)
        if ballot is not None and value is not None and self._values.setdefault(ballot, value) != value:
            raise BrokenError(f"two values have the ballot {ballot}")
        others = {to, *(core.acceptors.everyone if core.acceptors is not None else ())}
        seen = b"" if node_of(to) == host.number else host.seen.tell(sorted(others))
        self.send(host, node_of(to), "ask", core, request, host.seen.seen_of(to), seen)

    def _check_generation(self, host: Host, core: Core, request: RegisterRequest) -> None:
        ballot = request.ballot
        if ballot is None or request.kind is RequestKind.READ or isinstance(core, Force):
            return
        if any(line != ballot[:2] and line[0] >= ballot.generation for line in host.heard):
            raise BrokenError(
                f"node {host.number} goes on in generation {ballot.generation}, and knows of another force"
            )

    def deliver(self) -> None:
        """Deliver a message, the first one or any; while the world is not calm, it may be lost or repeated."""
        if not self.net:
            return
        chance = self.random
        at = chance.randrange(len(self.net)) if chance.random() < 0.5 else 0
        message = self.net[at]
        is_own, source, target = message.source == message.target, self.nodes[message.source], message.target
        if self.is_calm or is_own or chance.random() >= REPEATED:
            del self.net[at]
        if not self.is_calm and not is_own and (chance.random() < LOST or target in source.cuts):
            self._lose(message, 0.6)
        else:
            self.take(message)

    def take(self, message: Message) -> None:
        node = self.nodes[message.target]
        if node.host is None:
            self._lose(message, 0.5)
        elif not node.is_frozen and not self.nodes[message.source].is_frozen:
            getattr(node.host, f"on_{message.kind}")(message.source, *message.arguments)

    def _lose(self, message: Message, share: float) -> None:
        """Lose a message; the sender of a share of the requests sees that its connection has ended."""
        host = self.nodes[message.source].host
        if message.kind == "ask" and host is not None and self.random.random() < share:
            core, asked, *_ = message.arguments
            request = cast("RegisterRequest", asked)
            host.unreachable(cast("Core", core), request.to, request.number)

    # -- time and faults -----------------------------------------------------------------------------------------------

    @property
    def _wakes_at_ms(self) -> int:
        return min([core.wakes_at_ms for host in self.hosts() for core in host.cores()], default=NEVER_MS)

    def pass_ms(self, jump_ms: int) -> None:
        self.now_ms += jump_ms
        for host in self.hosts():
            host.wake()

    def _pass_time(self) -> None:
        wakes_ms = self._wakes_at_ms
        due_ms = max(0, wakes_ms - self.now_ms) if wakes_ms < NEVER_MS else 1
        self.pass_ms(self.random.choices((1, 5, 40, 1000, due_ms), (15, 20, 10, 4, 15))[0])

    def _fault(self) -> None:
        chance = self.random
        node, x = chance.choice(self.nodes), chance.random()
        if x < 0.25:
            if node.host is not None:
                self.crash(node)
        elif x < 0.75:
            if node.host is None:
                self.start(node)
        else:
            node.cuts = set() if node.cuts else {chance.randrange(len(self.nodes))}
        if not self._disasters and chance.random() < 0.5:
            self._change_disk(node)

    # -- lost and older disks ------------------------------------------------------------------------------------------

    def _change_disk(self, node: Node) -> None:
        """Copy a disk; or lose a disk, or put back a copy, if the register can do without that acceptor."""
        chance = self.random
        self._copies.append((node, node.store, dict(node.disk.durable)))
        copies = [each for each in self._copies[:-1] if each[1] == each[0].store and self._is_spare(each[0])]
        known = [(node, store, copy) for node, store, copy in copies if self._is_known(node, copy)]
        if not copies or self.gone_back is not None or chance.random() < (0.3 if known else 0.8):
            return
        node, _, copy = chance.choice(known or copies)
        if known:
            self.struck["put back"] += 1
            self.gone_back = node
        else:
            self.struck["lost"] += 1
            node.store, copy = node.store + 1, chance.choice(({}, copy))
        self.crash(node)
        node.disk.put(copy)
        accepted = {host.number: host.record.accepted for host in self.hosts() if host.record and host.record.accepted}
        last = max(accepted, key=accepted.__getitem__, default=0)
        for other in self.nodes if chance.random() < 0.7 else ():  # One that has the last value stays down.
            self.crash(other)
            if other.number != last:
                self.start(other)

    def _is_known(self, node: Node, copy: dict[bytes, bytes]) -> bool:
        """Return True if each quorum with a node has another one that has durably seen more of it than a copy has."""
        past, knowing = positions_on(copy, node.me), set()
        for other in self.nodes:
            heard = [position for acceptor, position in other.disk.heard if acceptor == node.me]
            if other is not node and not all(map(past.has_been, heard)):
                knowing.add(other.me)
        sets = {self.founders, *(value.acceptors for value in self._values.values())}
        return bool(knowing) and not any(
            node.me in each.everyone and each.is_quorum(each.everyone - knowing) for each in sets
        )

    def _is_spare(self, node: Node) -> bool:
        return self._is_recoverable({other.me for other in self.nodes if other is not node})

    def found_behind(self, host: Host) -> None:
        """Note that a store is said to be older than others have seen it."""
        self.struck["found behind"] += 1
        if self.gone_back is None or host.me != self.gone_back.me:
            raise BrokenError(f"the store of node {host.number} was not put back, and is said to be behind")

    def _is_recoverable(self, live: set[AcceptorId]) -> bool:
        """Return True if these acceptors are a quorum of each value that may be decided last."""
        records = [node.disk.durable.get(RECORD) for node in self.nodes]
        kept = [
            node.host.record if node.host else data and decode_record(data)
            for node, data in zip(self.nodes, records, strict=True)
        ]
        found = [(record.accepted, record.value) for record in kept if record and record.accepted and record.value]
        last = max([ballot.generation for ballot, _ in found], default=0)
        return all(value.acceptors.is_quorum(live) for ballot, value in found if ballot.generation == last)

    def sync(self) -> None:
        host = self.random.choice(self.hosts() or [None])
        if host is not None:
            if self.random.random() < 0.2:
                host.flush()
            host.sync(self.random.randint(0, len(host.disk.appended)))

    def step(self) -> None:
        x = self.random.random()
        if x < 0.6:
            self.deliver()
        elif x < 0.8:
            self.sync()
        elif x < 0.88:
            self._pass_time()
        elif x < 0.88 + self._faults:
            self._fault()
        elif x > 0.9:
            self._client()

    def _client(self) -> None:
        """Let some node's client act."""
        chance, hosts = self.random, self.hosts()
        if not hosts:
            return
        host, x, patience_ms = chance.choice(hosts), chance.random(), chance.choice((200, 1000, 30_000))
        if x < 0.35 and self._left:
            self._left -= 1
            count = chance.choice((1, 1, 2))
            host.submit([self.operation(host, chance.randrange(2)) for _ in range(count)], patience_ms)
        elif x < 0.5 and self.operations:
            host.submit([chance.choice(self.operations[-6:])], patience_ms)
        elif x < 0.55 and self._moves:
            self._moves -= 1
            numbers = range(len(self.nodes))
            host.reconfigure(chance.sample(numbers, chance.choice((1, 2, 3))), patience_ms)
        elif x < 0.75:
            host.poll(range(len(self.nodes)))
        elif x < 0.8:
            host.read(patience_ms)
        elif x < 0.81 and self._ends:
            host.end(patience_ms)

    def operation(self, host: Host, key: int) -> Operation:
        """Return a new operation on the map as a host has it."""
        generation, sequence, _ = host.position
        is_new = self.random.random() < 0.3
        self.operations.append(Operation(len(self.operations) + 1, generation, max(0, sequence), key, is_new))
        return self.operations[-1]

    # -- a lost majority -----------------------------------------------------------------------------------------------

    def records(self) -> dict[int, AcceptorRecord]:
        """Return the records of the acceptors that are up."""
        shown = {host.number: host.record for host in self.hosts()}
        return {number: record for number, record in shown.items() if record is not None}

    def top(self) -> Value:
        """Return the highest value that any acceptor that is up has accepted."""
        accepted = [(one.accepted, one.value) for one in self.records().values() if one.accepted and one.value]
        return max(accepted, key=lambda found: found[0])[1]

    def _generation(self) -> int:
        """Return the newest generation in which an acceptor that is up has accepted a value."""
        return max([one.accepted.generation for one in self.records().values() if one.accepted], default=-1)

    def _start_all(self) -> None:
        for node in self.nodes:
            node.cuts = set()
            if node.host is None and not node.is_dead:
                self.start(node)

    def disaster(self) -> None:
        """Lose a majority of the acceptors, force the register on the others, and let the lost ones come back."""
        chance = self.random
        self._start_all()
        members = self.top().acceptors.new
        if len(members) == 1:
            return  # Nobody would survive.
        generation = self._generation()
        lost = {node_of(member) for member in chance.sample(members, len(members) // 2 + 1)}
        for number in lost:
            self.crash(self.nodes[number])
        self.net = []
        faults, self._faults = self._faults, 0.0
        for _ in range(100):
            self.step()
        self._force_survivors(generation)
        for _ in range(100):
            self.step()
        self._faults = faults
        for number in lost:
            if self.nodes[number].host is None and chance.random() < 0.8:
                self.start(self.nodes[number])

    def _force_survivors(self, generation: int) -> None:
        for attempt in range(40):
            records = {number: record for number, record in self.records().items() if record.accepted}
            acceptors = self.top().acceptors if records else self.founders
            survivors = {node_of(member) for member in acceptors.everyone} & records.keys()
            # Survivors that do not know of an earlier force would begin one that conflicts with it.
            if (
                not survivors
                or self._generation() < generation
                or acceptors.is_quorum({self.nodes[number].me for number in survivors})
            ):
                break  # A crash has hidden the last set.
            self.is_calm = attempt >= 20
            for number in survivors:
                self.host(number).pulled = {number}
                for other in survivors:
                    self.host(number).poll([other])
            for _ in range(60):
                self.step()
            if all(self.host(number).pulled >= survivors for number in survivors):
                host, before = self.host(self.random.choice(sorted(survivors))), len(self.forces)
                host.begin_force(survivors)
                for _ in range(1000):
                    self.step()
                    if len(self.forces) > before:
                        break
                if self.forces[before:] == [ChangeEnd.DONE]:
                    break
        self.is_calm = False

    def forced(self, outcome: ProposalOutcome) -> None:
        self.forces.append(outcome.end)

    # -- healing -------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        with small_limits():
            for turn in range(self._disasters + 1):
                for _ in range(self.random.choice((600, 1200))):
                    self.step()
                if turn < self._disasters:
                    self.disaster()
            self.heal()
            self.chain.check()

    def heal(self) -> None:
        """Heal all but a minority; something must be decided, and show on every live node."""
        self._start_all()
        self.is_calm = True
        if self.gone_back is not None:
            self._replace(self.gone_back)
        self.net = []
        for host in self.hosts():
            host.stop_proposing()
        if not self._is_recoverable({node.me for node in self.nodes}):
            return
        self._kill_minority()
        self.decide("nothing is decided any more")
        self._settle()  # A change of acceptors ends.
        self._freeze()
        for host in self.hosts():  # Acceptors read the end of that change, of which they hear no decision.
            host.read(PROBE_MS)
        self._settle()
        self._hints = False
        self.decide("nothing is decided while one acceptor is frozen")
        generation = max(self.chain.last)
        place = generation, self.chain.last[generation]
        words = "the last decision does not show on each node"
        self._until(lambda: all(host.position[:2] >= place for host in self.hosts()), SHOWN_MS, words)

    def _replace(self, node: Node) -> None:
        """Give a node whose store is an older copy another disk, once all acceptors were read."""
        host, read_ms = self.host(node.number), self.now_ms + READ_MS
        self._until(lambda: bool(host.seen.behind) or self.now_ms > read_ms, HEALED_MS, "time stands still")
        self.crash(node)
        node.store += 1
        node.disk.put({})
        self.start(node)

    def _settle(self) -> None:
        settled_ms = self.now_ms + SETTLED_MS
        self._until(lambda: self.now_ms > settled_ms, HEALED_MS, "time stands still")

    def _kill_minority(self) -> None:
        """Let nodes die for good, as long as each value that may be decided keeps a quorum."""
        if self.random.random() < 0.6:
            for node in self.random.sample(self.nodes, len(self.nodes)):
                live = {host.me for host in self.hosts() if host.number != node.number}
                if self._is_recoverable(live):
                    self.crash(node)
                    node.is_dead = True

    def _freeze(self) -> None:
        """Freeze one acceptor that a quorum can do without."""
        acceptors, live = self.top().acceptors, {host.me for host in self.hosts()}
        for acceptor in self.random.sample(sorted(live), len(live)):
            if acceptor in acceptors.everyone and acceptors.is_quorum(live - {acceptor}):
                self.nodes[node_of(acceptor)].is_frozen = True
                return

    def decide(self, words: str) -> None:
        """Ask for new operations, each at some live node, until one is done."""
        first, due_ms = len(self.operations), self.now_ms

        def is_done() -> bool:
            nonlocal due_ms
            if self.now_ms >= due_ms:
                due_ms = self.now_ms + PROBE_MS
                host = self.random.choice(self.hosts())
                host.submit([self.operation(host, PROBED)._replace(is_new=False)], PROBE_MS)
            told = self.chain.told
            return max(self.chain.last) in self.chain.ends or any(
                told.get((one.generation, one.id)) == DONE for one in self.operations[first:]
            )

        self._until(is_done, HEALED_MS, words)

    def _until(self, is_over: Callable[[], bool], limit_ms: int, words: str) -> None:
        """Let time pass when all else is at rest, until this is so."""
        ends_ms, deliveries = self.now_ms + limit_ms, 0
        while not is_over():
            if self.net or any(host.disk.appended for host in self.hosts()):
                deliveries += 1
                if self.random.random() < 0.7:
                    self.deliver()
                else:
                    self.sync()
            else:
                tick_ms = self.now_ms - self.now_ms % TICK_MS + TICK_MS
                self.pass_ms(max(1, min(self._wakes_at_ms, tick_ms) - self.now_ms))
                if self.now_ms == tick_ms:
                    self._follow(tick_ms // TICK_MS)
            if self.now_ms > ends_ms or deliveries > MAX_DELIVERIES:
                raise BrokenError(words)

    def _follow(self, tick: int) -> None:
        """Let each node whose turn it is poll an acceptor, the next one each time, or read by a quorum.

        Any message may have the hint that its sender has a newer map, so nodes also poll others.
        """
        for host in self.hosts():
            if self._hints and (tick + host.number) % (HINT_MS // TICK_MS) == 0:
                host.poll([(tick // (HINT_MS // TICK_MS) + host.number) % len(self.nodes)])
            if (tick + host.number) % (POLL_MS // TICK_MS) == 0:
                host.poll_next(tick // (POLL_MS // TICK_MS))
            if (tick + host.number) % (READ_MS // TICK_MS) == 0:
                host.read(PROBE_MS)

"""A small world in which the disk of an acceptor is put back to an older copy, under the id that it has.

Each proposer lives on a node and knows that node's positions of stores, which are sent with requests and replies. A
disk is put back once, and only if every quorum with it has an acceptor that can tell. The world records what each batch
persists, so it knows who can tell.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from gossipkv.register.acceptor import AcceptorAnswer, Keep
from gossipkv.register.force import Force
from gossipkv.register.messages import decode_record, decode_reply
from gossipkv.register.proposal import ProposalOutcome, SendToAcceptor
from gossipkv.register.seen import BEHIND, POSITION, SEEN, SeenPositions, positions_in
from tests.unit.register.inhabitants import Message, Node, Party
from tests.unit.register.small_world import SmallWorld

POWER = 0.5  # The probability that all others lose their power when a disk goes back.
LETTERS = (POSITION, SEEN, BEHIND)


class SeeingParty(Party):
    """A proposer on a node."""

    @property
    def node(self):
        parties = self.world.parties
        return self.world.nodes[parties.index(self) if self in parties else 0]

    def perform(self) -> None:
        for effect in self.core.take():
            match effect:
                case SendToAcceptor(to, number, request):
                    self.world.watch.sent(self.core, request)
                    known = self.core.acceptors
                    seen = self.node.seen.tell(sorted({to, *(known.everyone if known is not None else ())}))
                    told = self.node.seen.seen_of(to)
                    self.world.bag.append(Message(self, to, number, request, is_reply=False, seen=seen, told=told))
                case ProposalOutcome():
                    self.world.history.told(effect)

    def receive(self, message: Message) -> None:
        self.node.hear(message.seen)
        if self.node.seen.is_counted(decode_reply(message.data).by, message.told, message.seen):
            super().receive(message)
        else:
            self.world.struck["not counted"] += 1
            self.unreachable(message)


class SeeingNode(Node):
    """An acceptor that stores the positions of other stores."""

    def start(self) -> None:
        """Begin a life; the proposers here begin a new one too."""
        records = [(key, value) for key, value in self.disk.items() if key[:1] in LETTERS]
        self.seen = SeenPositions(self.id, records, Random(self.world.random.getrandbits(64)))
        self.batches = []  # Unsynced batches: a keep or None, its records, and the positions heard before.
        self.heard = []
        super().start()
        for party in getattr(self.world, "parties", ()):
            if not isinstance(party.core, Force) and party.node is self:
                party.core = self.world._proposer()

    @property
    def reached(self):
        """Return the position of the store, including unsynced batches."""
        return self.seen.position._replace(batches=self.seen.position.batches + len(self.batches))

    def hear(self, data: bytes) -> None:
        self.heard += [row for row in positions_in(data) if row[1].batches]
        was_behind = self.seen.behind
        is_news = self.seen.hear(data)
        if self.seen.behind and not was_behind:
            self.world.struck["found behind"] += 1
            self._append({BEHIND + self.id.store.to_bytes(8, "big"): self.seen.behind.encode()}, None)
        for party in self.world.parties:
            if is_news and party.node is self:
                self.world.struck["began anew"] += 1
                party.core.begin_anew("news of a store", now_ms=self.world.now_ms)

    def receive(self, message: Message) -> None:
        if self.is_up:
            self.hear(message.seen)
        if self.seen.behind:
            message.party.unreachable(message)
        else:
            super().receive(message)

    def _append(self, records, keep) -> None:
        self.batches.append((keep, {**records, **self.seen.records()}, self.heard))
        self.heard = []
        self.unsynced.append(keep)

    def _keep(self, count: int) -> list[Keep]:
        done, self.batches = self.batches[:count], self.batches[count:]
        del self.unsynced[:count]
        for keep, records, heard in done:
            for key, value in records.items():
                if value is None:
                    self.disk.pop(key, None)
                else:
                    self.disk[key] = value
            self.world.saw(self.id, heard)
            if keep is not None:
                self.world.watch.kept(self.id, decode_record(keep.record))
        return [keep for keep, _, _ in done]

    def sync(self, count: int) -> None:
        """Write the first of the appended batches to the disk."""
        for keep in self._keep(count):
            self.seen.synced()
            if keep is not None:
                self.core.synced(keep.serial)
        self.perform()

    def crash(self) -> None:
        """Lose the process, and some or all unsynced batches."""
        self._keep(self.world.random.randint(0, len(self.batches)))
        self.start()

    def perform(self) -> None:
        """Carry out the core's effects; the process may crash right after an answer."""
        for effect in self.core.take():
            match effect:
                case Keep():
                    self._append({effect.register: effect.record}, effect)
                case AcceptorAnswer(token, reply) if not self.seen.behind:
                    asked = self.world.tokens[token]
                    known = decode_reply(reply).record and self.core.record(decode_reply(reply).register)
                    others = sorted(known.value.acceptors.everyone) if known and known.value else ()
                    answer = asked._replace(data=reply, is_reply=True, seen=self.seen.tell(others))
                    self.world.bag.append(answer)
                    if self.world.random.random() < self.world.odds.crash_after_answer:
                        self.crash()
                        return


class OlderCopies(SmallWorld):
    """One register, and a disk that goes back."""

    node_of, party_of = SeeingNode, SeeingParty

    def __init__(self, *args, **more) -> None:
        self.durably_seen = {}  # Positions, by their observer and their acceptor.
        self.copies = []  # Copies of disks: node, position, contents.
        self.gone_back = None
        self.struck = Counter()
        super().__init__(*args, **more)

    def saw(self, who, rows) -> None:
        for acceptor, position in rows:
            self.durably_seen.setdefault(who, {}).setdefault(acceptor, set()).add(position)

    def _go_back(self) -> None:
        """Copy a disk, or put one of the copies back."""
        if self.gone_back is not None:
            return
        if not self.copies or self.random.random() < 0.3:
            node = self.random.choice(self.nodes)
            self.copies.append((node, node.reached, dict(node.disk)))
            return
        node, reached, disk = self.random.choice(self.copies)
        if self._may_go_back(node, reached):
            self.struck["went back"] += 1
            self.gone_back = node
            node.disk = dict(disk)
            self.watch._records.pop(node.id, None)
            node.start()
            for other in self.nodes if self.random.random() < POWER else ():
                if other is not node:
                    other.crash()

    def _may_go_back(self, node, reached) -> bool:
        knowing = {
            who
            for who, seen in self.durably_seen.items()
            if who != node.id and any(is_beyond(position, reached) for position in seen.get(node.id, ()))
        }
        sets = [self.hints[0], *(value.acceptors for value in self.watch._values.values())]
        return bool(knowing) and not any(
            node.id in each.everyone and each.is_quorum(each.everyone - knowing) for each in sets
        )

    def heal(self) -> None:
        """Give the acceptor that went back another disk, as an operator would."""
        if self.gone_back is not None:
            self.gone_back.become({})
        super().heal()


def is_beyond(position, reached) -> bool:
    """Return True if a store at `reached` has not been at this position of its own line."""
    if position[:2] == reached[:2]:
        return position.batches > reached.batches
    return position.incarnation >= reached.incarnation

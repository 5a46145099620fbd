"""Schedules for the world of edits in which a planted bug surely breaks a promise: random ones find it rarely.

Nothing happens by itself: `Script` delivers the messages that a schedule does not drop, in order, and passes time.
"""

from __future__ import annotations

from gossipkv.register.messages import RequestKind
from gossipkv.register.proposal import ChangeEnd
from tests.world.edits.host import node_of
from tests.world.edits.operations import LIFE
from tests.world.edits.world import World, small_limits

LONG_MS = 60_000


class Script(World):
    """Nodes with calm messages, of which the first accept."""

    def __init__(self, founders=(0, 1, 2), nodes=4):
        super().__init__(0, nodes=nodes, founders=founders)
        self.is_calm = True

    def write(self, number, *keys):
        """Ask a node for operations in one transaction; return the last."""
        host = self.host(number)
        operations = [self.operation(host, key)._replace(is_new=False) for key in keys or (0,)]
        host.submit(operations, LONG_MS)
        return operations[-1]

    def rest(self, drop=lambda message: False, *, turns=1, is_synced=True):
        """Deliver all messages, and pass time this often; `drop` chooses the messages that are lost."""
        for _ in range(turns):
            while self.net or (is_synced and any(host.disk.appended for host in self.hosts())):
                if self.net:
                    own = [message for message in self.net if message.source == message.target]
                    message = [*own, *self.net][0]  # A process answers itself at once.
                    self.net.remove(message)
                    if not drop(message):
                        self.take(message)
                for host in self.hosts() if is_synced else ():
                    host.sync(len(host.disk.appended))
            if turns > 1:
                self.pass_ms(200)

    def restart(self, number, *, keeps=True):
        """Restart a process; its disk keeps all appended batches, or none."""
        node = self.nodes[number]
        node.disk.crash(len(node.disk.appended) if keeps else 0)
        self.start(node)

    def kill(self, *numbers):
        for number in numbers:
            self.restart(number)
            self.nodes[number].host, self.nodes[number].is_dead = None, True

    def writes(self, count):
        """Write at node 0, everywhere."""
        for _ in range(count):
            self.write(0)
            self.rest(turns=2)

    def poll(self, number, source, hold=None):
        """Let a node poll another; return its answers of the kind to hold."""
        held = []
        self.host(number).poll([source])
        self.rest(lambda message: message.kind == hold and (held.append(message) or True))
        return held

    def force(self, *survivors):
        """Force the register, from the last survivor, after all have pulled each other's maps."""
        for number in survivors:
            for other in survivors:
                self.poll(number, other)
        self.host(survivors[-1]).begin_force(survivors)
        self.rest(turns=15)
        assert self.forces == [ChangeEnd.DONE]

    def put_back(self, number, records, *, is_same=True):
        """Put other records on the disk of a node, as its store or as another one."""
        node = self.nodes[number]
        node.disk.put(records)
        node.store += not is_same
        self.gone_back = node
        self.start(node)

    def stop(self, *numbers):
        for number in numbers:
            self.restart(number)
            self.nodes[number].host = None

    def replace(self, number):
        """Give a node another disk, and start the others."""
        self.put_back(number, {}, is_same=False)
        for node in self.nodes:
            if node.host is None and not node.is_dead:
                self.start(node)

    def end(self):
        """Something more is decided, and all operations happened as told."""
        self.net = []
        self.decide("nothing is decided any more")
        self.chain.check()


def to(*numbers, kind=None, source=None):
    """Return a predicate: messages to these nodes, of a kind or a kind of request."""

    def drop(message):
        is_kind = kind is None or kind in {message.kind, request_kind(message)}
        return (
            message.target in numbers
            and message.target != message.source
            and is_kind
            and source in {None, message.source}
        )

    return drop


def request_kind(message):
    return message.arguments[1].kind if message.kind == "ask" else None


ALL = range(9)
ACCEPT, PREPARE = RequestKind.ACCEPT, RequestKind.PREPARE


def leave():
    """A proposer leaves a joint configuration that one acceptor has, and the old set goes on without it."""
    world = Script()
    world.host(0).reconfigure([3], LONG_MS)
    world.rest(lambda message: request_kind(message) is ACCEPT and message.target != 3)
    world.restart(0)
    world.restart(3)
    world.write(3)
    world.rest(lambda message: request_kind(message) is ACCEPT and message.target != 3)
    world.restart(3)
    world.write(1, 1)
    world.rest(to(3), turns=8)
    world.write(3, 2)
    world.rest(turns=8)
    world.end()


def oldset():
    """A former acceptor shows the value with which it left, and the present ones take another on top of it."""
    world = Script(founders=(0,))
    world.host(0).reconfigure([1, 2, 3], LONG_MS)
    world.rest(turns=4)
    world.write(1)
    world.rest(lambda message: message.kind == "notice" or message.target == 0, turns=12)
    world.nodes.append(type(world.nodes[0])(4))
    world.start(world.nodes[4])
    world.write(4, 1)
    world.rest(to(*ALL, source=4), turns=40)
    world.rest(turns=40)
    world.end()


def direct():
    """A set changes at once: the old one and the new one decide apart."""
    world = Script(founders=(0, 1, 2), nodes=5)
    world.host(0).reconfigure([2, 3, 4], LONG_MS)
    world.rest(lambda message: request_kind(message) is ACCEPT and message.target in {0, 1, 2})
    world.restart(0)
    world.restart(4)
    world.write(1)
    world.rest(to(2, 3, 4), turns=8)
    world.write(4, 1)
    world.rest(to(0, 1, 2), turns=8)
    world.rest(turns=8)
    world.end()


def nohold():
    """An acceptor accepts the last transactions of a map that it does not have; the only one that has it is lost."""
    world = Script(nodes=3)
    for _ in range(3):
        world.write(0)
        world.rest(to(2))
    for _ in range(3):
        world.write(0)
        world.rest(lambda message: message.kind == "notice" or message.target == 1, turns=8)
    world.kill(0)
    world.end()


def inmemory():
    """Acceptors accept a value on a map that only their memory has, and restart."""
    world = Script(nodes=3)
    for first in (0, 3, 6):
        world.write(0, *range(first, first + 3))
    world.rest(lambda message: message.kind == "notice", turns=8)
    world.write(0)
    world.rest(lambda message: message.kind == "notice", turns=4)
    for number in (1, 2):
        world.restart(number)
    world.kill(0)
    world.end()


def nosync():
    """An acceptor forgets what it has answered."""
    world = Script(nodes=3)
    world.write(0)
    world.rest(to(2), is_synced=False)
    world.restart(1, keeps=False)
    world.restart(0, keeps=False)
    world.write(2, 1)
    world.rest(turns=8)
    world.end()


def early():
    """One acceptor has an outcome that was told, and the others decide without it."""
    world = Script(nodes=3)
    world.write(0)
    world.rest(lambda message: request_kind(message) is ACCEPT and message.target != 0)
    world.kill(0)
    world.write(1, 1)
    world.rest(turns=8)
    world.end()


def nolife():
    """An operation is asked again after its outcome is forgotten, before it is too old."""
    world = Script(nodes=3)
    operation = world.write(0)
    world.rest()
    for _ in range(8):
        world.write(0, 1)
        world.rest()
    for _ in range(LIFE):
        world.host(1).submit([operation], LONG_MS)
        world.rest(turns=2)
        world.write(0, 1)
        world.rest(turns=2)
    world.end()


def lower():
    """A snapshot ends after the base has overtaken it."""
    world = Script(nodes=5)
    world.writes(1)
    world.poll(4, 0)
    world.writes(3)
    news = world.poll(4, 2, hold="news")
    world.writes(1)
    snapshot = world.poll(4, 1, hold="rested")
    world.net += news
    world.rest()
    world.writes(1)
    world.poll(4, 0)
    world.net += snapshot
    world.rest()
    world.end()


def lost_line():
    """Return a world in which node 1 has a transaction of a lost generation, and node 0 another one."""
    world = Script()
    world.writes(1)
    world.write(1)
    world.rest(to(0), turns=8)
    world.host(1).flush()
    world.kill(1, 2)
    world.force(0)
    world.writes(1)
    world.restart(1)
    assert world.host(0).position[:2] == (1, 2)
    return world


def nodigest():
    """A lost acceptor that is back asks for transactions above its base, and there are none."""
    world = lost_line()
    assert world.host(1).position[:2] == (0, 2)
    world.poll(1, 0)
    assert world.host(1).position[:2] == (1, 2)
    world.end()


def stalenews():
    """The transactions of a newer generation reach a base that went on in the lost one meanwhile."""
    world = lost_line()
    host = world.host(1)
    world.host(0).on_poll(1, (0, 1, host.position[2]))
    world.rest()
    world.end()


def basebelow():
    """A survivor knows a decided transaction from a poll alone."""
    world = Script()
    world.write(1)
    world.rest(to(0), turns=8)
    world.poll(0, 1)
    world.kill(1, 2)
    world.force(0)
    world.end()


def bysequence():
    """A survivor has accepted two transactions of a line that lost against a decided one, which another knows."""
    world = Script(founders=range(5), nodes=5)
    for key in range(2):
        world.write(0, key)
        world.rest(lambda message: request_kind(message) is ACCEPT and message.target != 0)
        world.restart(0)
    world.write(3)
    world.rest(to(0, 1), turns=8)
    world.poll(1, 3)
    world.kill(2, 3, 4)
    world.force(0, 1)
    world.end()


def seen_by(world, number):
    """Decide a transaction without a node, which has then seen more of node 2 than a copy has; return the copy."""
    copy = dict(world.nodes[2].disk.durable)
    world.write(0)
    world.rest(all_but_asked(number), turns=4)
    world.host(0).read(LONG_MS)
    world.rest(all_but_asked(number), turns=4)
    return copy


def all_but_asked(*numbers):
    """Return a predicate: messages to these nodes, but for prepares and reads."""
    return lambda message: to(*numbers)(message) and request_kind(message) not in {PREPARE, RequestKind.READ}


def decide_with_copy(world, number):
    """Let a node go on with the older copy at node 2, without the others; then bring the others back."""
    world.write(number, 1)
    world.rest(turns=8)
    world.replace(2)
    world.end()


def oldid():
    """An older copy of a store, or another one, stands for it in a quorum that has not seen its last promise."""
    world = Script(nodes=3)
    copy = dict(world.nodes[2].disk.durable)
    world.write(0)
    world.rest(to(1), turns=4)
    world.put_back(2, copy, is_same=False)
    world.stop(0)
    decide_with_copy(world, 1)


def behind():
    """An older copy of a store is put back, and a node that has seen more of it makes a quorum with it."""
    world = Script(nodes=3)
    copy = seen_by(world, 1)
    world.put_back(2, copy)
    world.stop(0)
    decide_with_copy(world, 1)


def samedraw():
    """The copy opens as often as the store has, and writes as much, before it meets others."""
    world = Script(nodes=3)
    copy = dict(world.nodes[2].disk.durable)
    world.restart(2)
    seen_by(world, 1)
    world.put_back(2, copy)
    world.stop(0)
    world.write(2, 2)
    world.rest(to(0, 1), turns=40)
    world.host(2).stop_proposing()
    decide_with_copy(world, 1)


def notkept():
    """The node that has seen more of a store restarts."""
    world = Script(nodes=3)
    copy = seen_by(world, 1)
    world.write(2)
    world.rest(all_but_asked(1), turns=4)
    world.restart(1)
    world.put_back(2, copy)
    world.stop(0)
    decide_with_copy(world, 1)


def uncounted():
    """A request is under way to an older copy when its sender hears of the store's last batch."""
    world = Script(nodes=3)
    copy = dict(world.nodes[2].disk.durable)
    world.write(0)
    world.rest(to(1), turns=4)
    world.put_back(2, copy)
    held = []
    world.write(1, 1)
    world.rest(lambda message: message.target in {0, 2} and message.kind == "ask" and (held.append(message) or True))
    world.host(0).read(LONG_MS)
    world.rest(to(2))
    world.stop(0)
    world.net += [message for message in held if message.target == 2]
    world.rest(turns=8)
    world.replace(2)
    world.end()


def nonews():
    """A proposer counts an older copy, and then an acceptor that has seen more of the store."""
    world = Script(founders=range(5), nodes=5)
    copy = dict(world.nodes[2].disk.durable)
    world.write(3)
    world.rest(all_but_asked(0, 1), turns=4)
    world.host(3).read(LONG_MS)
    world.rest(lambda message: to(0)(message) or all_but_asked(1)(message), turns=4)
    world.put_back(2, copy)
    world.stop(3, 4)
    held = []
    world.write(0, 1)
    world.rest(lambda message: message.target == 1 and message.kind == "ask" and (held.append(message) or True))
    world.net += held
    world.rest(turns=8)
    world.replace(2)
    world.end()


def twoforces():
    """Two survivors are forced apart, and then meet."""
    world = Script(nodes=3)
    world.writes(1)
    world.kill(2)
    for survivor in (0, 1):
        world.host(survivor).begin_force([survivor])
        world.rest(to(1 - survivor), turns=15)
    assert world.forces == [ChangeEnd.DONE] * 2
    world.poll(0, 1)
    world.poll(1, 0)
    for number in (0, 1):
        world.write(number, number)
        world.rest(turns=8)
    world.forces.clear()
    world.force(node_of(world.top().acceptors.new[0]))
    world.end()


def endforce():
    """A survivor knows from a poll alone that the map has ended."""
    world = Script(nodes=3)
    world.writes(1)
    world.host(1).end(LONG_MS)
    world.rest(to(0), turns=8)
    world.poll(0, 1)
    world.kill(1, 2)
    world.force(0)
    world.end()


AIMED = {
    "leave": leave,
    "oldset": oldset,
    "direct": direct,
    "nohold": nohold,
    "inmemory": inmemory,
    "nosync": nosync,
    "early": early,
    "nolife": nolife,
    "lower": lower,
    "nodigest": nodigest,
    "stalenews": stalenews,
    "basebelow": basebelow,
    "bysequence": bysequence,
    "oldid": oldid,
    "behind": behind,
    "samedraw": samedraw,
    "notkept": notkept,
    "uncounted": uncounted,
    "nonews": nonews,
    "twoforces": twoforces,
    "endforce": endforce,
}


def run(name):
    """Run a schedule. Raises BrokenError if a promise is broken."""
    with small_limits():
        AIMED[name]()

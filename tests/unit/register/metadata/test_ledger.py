"""A ledger fetches and checks the pages of one map, and holds a root only when all are synced."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest
import trio

from gossipkv.errors import ProtocolError, Unavailable
from gossipkv.register.metadata.ledger import Offer, RegisterLedger
from gossipkv.register.metadata.pages import MissingPage, name_of
from gossipkv.register.metadata.tree import ChangedPages, MapTree
from gossipkv.register.space import Space
from tests.unit.register.metadata.maps import ANY, put_all
from tests.world.metadata.store import Disk, Mood, SimulatedStore

REGISTER = b"r" * 16
RECORD = b"x" * 6000  # With this size a dozen entries need more than one leaf.


class Nobody:
    """A witness that sees nothing."""

    def synced(self, disk, records):
        pass


class Scene:
    """A ledger, and nodes with pages."""

    def __init__(self):
        self.disk, self.mood = Disk(b"n" * 16, 1), Mood()
        self.space = Space(SimulatedStore(self.disk, self.mood, Random(1), Nobody(), lambda when: None))
        self.given = {}  # Pages by their names, by node.
        self.asked = []
        self.ledger = RegisterLedger(REGISTER, ANY, self.space, self.ask, beside=self.beside)

    async def ask(self, node, method, params, timeout_s):
        self.asked.append(node)
        await trio.sleep(0.001)
        if node not in self.given:
            raise Unavailable("no such node")
        return [self.given[node].get(name) for name in params[1]]

    async def beside(self, do):
        await trio.sleep(0.001)
        return do()

    def again(self):
        prefix = b"m" + REGISTER
        records = [(key[len(prefix) :], value) for key, value in sorted(self.disk.records.items())]
        return RegisterLedger(REGISTER, ANY, self.space, self.ask, beside=self.beside, records=records)


@pytest.fixture
async def scene(nursery):
    """A scene whose space runs."""
    made = Scene()
    await nursery.start(made.space.run)
    return made


def large(config=1, entries=40):
    puts = {b"%03d" % number: RECORD for number in range(entries)}
    return put_all(MapTree.empty(ANY.name), config, puts)


def changed_from(first, config=2):
    return put_all(MapTree.opened(first.pages.__getitem__, first.root, ANY.name), config, {b"000": b"new %d" % config})


async def test_a_root_stays_while_somebody_fetches_it(autojump_clock, scene):
    """A node that has the root's page requests the rest next, while the map may change often."""
    first = large()
    await scene.ledger.pin(first.root, 1, first.pages)
    last = changed_from(first, 20)
    await scene.ledger.pin(last.root, 20, last.pages)
    assert scene.ledger.pages([first.root]) == [first.pages[first.root]]
    await scene.ledger.collect(20, [last.root])
    assert [*scene.ledger.pages([*first.pages][:8])] == [*first.pages.values()][:8]
    for config in range(21, 40):
        other = changed_from(last, config)
        await scene.ledger.pin(other.root, config, other.pages)
        scene.ledger.pages([other.root])
    await scene.ledger.collect(40, [last.root])
    assert scene.ledger.pages([first.root]) == [None]


async def test_changes_that_come_at_once_follow_each_other(autojump_clock, scene):
    """A busy node may take the changes in any order; the node requests nothing and holds all."""
    first = large()
    await scene.ledger.pin(first.root, 1, first.pages)
    pages, changes = dict(first.pages), [first]
    for config in range(2, 8):
        tree = MapTree.opened(pages.__getitem__, changes[-1].root, ANY.name)
        changes.append(put_all(tree, config, {b"%03d" % (5 * config): RECORD[1:]}))  # Each change is in another leaf.
        pages |= changes[-1].pages
    scene.given[b"s" * 16] = pages
    async with trio.open_nursery() as nursery:
        for at in Random(5).sample(range(1, 7), 6):
            offer = Offer(b"s" * 16, changes[at - 1].root, changes[at], at + 1)
            nursery.start_soon(scene.ledger.take, offer)
    assert scene.asked == []
    assert all(scene.ledger.holds(change.root) for change in changes)


async def test_a_first_map_and_a_change(autojump_clock, scene):
    """A root is held once all is synced and after a restart; a change needs only its new pages."""
    first = large()
    assert len(first.pages) > 4
    await scene.ledger.take(Offer(b"s", None, first, 1))
    second = changed_from(first)
    assert len(second.pages) < len(first.pages)
    with trio.move_on_after(0):
        await scene.ledger.take(Offer(b"s", first.root, second, 2))
    assert not scene.ledger.holds(second.root), "it is not synced yet"
    assert scene.ledger.read(second.root) == second.pages[second.root]
    await scene.ledger.take(Offer(b"s", first.root, second, 2))
    for ledger in (scene.ledger, scene.again()):
        assert ledger.holds(first.root)
        assert ledger.holds(second.root)
    assert scene.asked == []


async def test_a_page_is_missing_on_one(autojump_clock, scene):
    """The next source gives the page; only missing pages are requested."""
    first = large()
    names = [*first.pages]
    scene.given = {b"b": {name: first.pages[name] for name in names[:3]}, b"c": first.pages}
    await scene.ledger.fetch(first.root, 1, [b"a", b"b", b"c"], offered={first.root: first.pages[first.root]})
    assert scene.ledger.holds(first.root)
    assert set(scene.asked) == {b"a", b"b", b"c"}


async def test_a_page_is_missing_on_all(autojump_clock, scene):
    """The error names the page, and nothing is held or kept."""
    first = large()
    lost = next(name for name in first.pages if name != first.root)
    scene.given = {node: {name: page for name, page in first.pages.items() if name != lost} for node in (b"a", b"b")}
    with pytest.raises(MissingPage) as missing:
        await scene.ledger.fetch(first.root, 1, [b"a", b"b"])
    assert missing.value.name == lost
    assert not scene.ledger.holds(first.root)
    assert scene.disk.records == {}


@pytest.mark.parametrize("lie", ["other bytes", "no bytes", "no list"])
async def test_what_is_not_its_name(autojump_clock, scene, lie):
    """A false page counts as missing, and an honest source gives the true one."""
    first = large()
    liar = dict.fromkeys(first.pages, b"lie" if lie == "other bytes" else 7)
    scene.given = {b"a": liar, b"b": first.pages}
    if lie == "no list":
        honest = scene.ask

        async def ask(node, *rest):
            return {} if node == b"a" else await honest(node, *rest)

        scene.ledger._ask = ask
    await scene.ledger.fetch(first.root, 1, [b"a", b"b"])
    assert scene.ledger.holds(first.root)


async def test_a_map_of_many_pieces_is_here_when_all_of_it_is(autojump_clock, scene, monkeypatch):
    """The root is pinned with the first piece."""
    monkeypatch.setattr("gossipkv.register.metadata.ledger.MAX_BATCH_BYTES", 1)
    first = large()
    scene.mood.slow_s = 1
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.ledger.pin, first.root, 1, first.pages)
        await trio.sleep(0.5)
        assert scene.ledger.pins == 1
        assert not scene.ledger.has(first.root)
        await trio.sleep(len(first.pages) - 1)
        assert scene.ledger.has(first.root)
        assert not scene.ledger.holds(first.root)
    assert scene.ledger.holds(first.root)


async def test_what_is_no_change_of_its_base(autojump_clock, scene):
    """The change is refused, and nothing of it is kept."""
    first = large()
    await scene.ledger.take(Offer(b"s", None, first, 1))
    before = dict(scene.disk.records)
    second = changed_from(first)
    wrong = [
        (second, 3),
        (ChangedPages(second.root, second.pages | {name_of(b"more"): b"more"}), 2),
        (put_all(MapTree.opened(first.pages.__getitem__, first.root, ANY.name), 2, {b"000": b"forbidden"}), 2),
    ]
    for changed, config in wrong:
        with pytest.raises(ProtocolError):
            await scene.ledger.take(Offer(b"s", first.root, changed, config))
        with suppress(ProtocolError):
            scene.ledger.append_checked(Offer(b"s", first.root, changed, config))
        assert scene.ledger.pins == 1
    with pytest.raises(MissingPage):
        scene.ledger.append_checked(Offer(b"s", b"?" * 32, second, 2))
    assert scene.disk.records == before


async def test_what_was_collected_meanwhile_is_not_told_to_be_held(autojump_clock, scene):
    """Shared pages of an older root go while a root is fetched; then the root is fetched again, or missing."""
    first = large()
    await scene.ledger.take(Offer(b"s", None, first, 1))
    second = changed_from(first)
    new = {name: second.pages[name] for name in second.pages}
    scene.given = {b"s": new}

    async def beside(do):
        return do()

    scene.ledger._beside = beside
    honest = scene.ask

    async def ask(*question):
        answer = await honest(*question)
        await scene.ledger.collect(1, [])  # A full round has shown another head of this sequence.
        return answer

    scene.ledger._ask = ask
    with pytest.raises(MissingPage):
        await scene.ledger.fetch(second.root, 2, [b"s"])
    assert not scene.ledger.holds(second.root)
    scene.given = {b"s": new | first.pages}
    scene.ledger._ask = honest
    await scene.ledger.fetch(second.root, 2, [b"s"])
    assert scene.ledger.holds(second.root)


async def test_what_is_collected_while_it_is_synced_is_held_anew_before_it_is_told(autojump_clock, scene):
    """A full round has shown another head of that sequence."""
    first = large()
    await scene.ledger.take(Offer(b"s", None, first, 1))
    second = changed_from(first)
    async with trio.open_nursery() as nursery:
        scene.mood.slow_s = 1
        nursery.start_soon(scene.ledger.take, Offer(b"s", first.root, second, 2))
        await trio.sleep(0.5)
        await scene.ledger.collect(2, [first.root])
    assert scene.ledger.holds(second.root)


async def test_pages_go_when_no_root_needs_them(autojump_clock, scene):
    """Pages that the next root shares stay."""
    first = large()
    await scene.ledger.take(Offer(b"s", None, first, 1))
    second = changed_from(first)
    await scene.ledger.take(Offer(b"s", first.root, second, 2))
    await scene.ledger.collect(2, [second.root])
    tree = MapTree.opened(scene.ledger.read, second.root, ANY.name)
    assert len([*tree.scan()]) == 40
    assert not scene.ledger.holds(first.root)
    assert scene.ledger.pages([first.root, second.root]) == [None, second.pages[second.root]]
    await scene.ledger.discard()
    assert scene.disk.records == {}


async def test_a_store_that_closes(autojump_clock, scene):
    """A waiting caller gets the error."""
    scene.mood.fails = True
    with trio.fail_after(5), pytest.raises(Unavailable, match="the disk failed"):
        await scene.ledger.take(Offer(b"s", None, large(), 1))
    assert not scene.ledger.holds(large().root)

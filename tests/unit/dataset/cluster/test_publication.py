"""The content and the time of a node's statements about its versions."""

from __future__ import annotations

from gossipkv.dataset.cluster.effects import Publish, PublishDatabase, Withdraw
from gossipkv.dataset.cluster.publication import PROGRESS_MS, RETRY_MS
from tests.unit.dataset.cluster.scene import Node, active, identity, some, statement

ONE, TWO, THREE = (identity(version) for version in "123")


def said(node, begin=0):
    """Return the published versions since then, with `-` before withdrawn ones."""
    return [
        effect.version if isinstance(effect, Publish) else f"-{effect.version}"
        for effect in node.effects[begin:]
        if isinstance(effect, Publish | Withdraw)
    ]


def test_the_first_at_once_then_one_a_second():
    """Partitions that become ready meanwhile are published together."""
    node = Node()
    node.has(0)
    assert node.published["1"].ready == some(0)
    node.step(100)
    node.has(0, 1)
    node.has(0, 1, 2)
    assert said(node) == ["1"]
    assert node.core.wakes_at_ms <= node.now_ms + 900
    node.step(900)
    assert said(node) == ["1", "1"]
    assert node.published["1"].ready == some(0, 1, 2)
    node.step(10_000)
    assert said(node) == ["1", "1"]


def test_the_end_of_a_build_is_told_at_once():
    """This node may switch from then on, so other members must know its owners."""
    node = Node()
    node.copy(identity=ONE, building=some(0, 1))
    node.step()
    node.step(10)
    node.has(0, building=some(1))
    assert (said(node), node.published["1"].ready) == (["1"], some())
    node.has(0, 1)
    assert (said(node), node.published["1"].ready) == (["1", "1"], some(0, 1))


def test_what_is_taken_back_is_told_at_once():
    """A copy is dropped only after its withdrawal is published."""
    node = Node()
    node.has(0, 1)
    node.has(0, 1, going=some(1))
    assert node.published["1"].ready == some(0)
    assert node.core.is_withdrawn("1", some(1))
    node.core.drop_copy("1")
    assert not node.core.is_withdrawn("1", some(0))
    node.step()
    assert node.core.is_withdrawn("1", some(0))
    assert said(node) == ["1", "1", "-1"]


def test_progress_alone_is_told_seldom():
    """A build of a hundred steps is not a hundred statements."""
    node = Node()
    for percent in range(100):
        node.copy(identity=ONE, building=some(0, 1), progress=percent)
        node.step(100)
    assert len(said(node)) == 1
    node.step(PROGRESS_MS)
    assert len(said(node)) == 2
    assert node.published["1"].progress == 99


def test_another_identity_takes_the_place_of_the_first():
    """The old statement is no longer true."""
    node = Node()
    node.has(0, 1)
    node.has(0, of=identity(regrouped=True))
    assert node.published["1"].identity.regrouped


def test_the_active_version_goes_first_where_there_is_no_room():
    """The next version comes second; an old one is left out, named, and tried again."""
    node = Node("b")
    node.settle()
    node.has(0, of=ONE)
    node.has(0, of=THREE)
    node.core.activate(TWO)
    node.has(0, of=TWO)
    effects = node.core.refused("2", now_ms=node.now_ms)
    assert [type(effect) for effect in effects] == [Withdraw, Publish]
    assert [effect.version for effect in effects] == ["1", "2"]
    assert node.core.left_out == ["1"]
    begin = len(node.effects)
    node.step(RETRY_MS - 1)
    assert said(node, begin) == []
    node.published.pop("1")
    node.step(1)
    assert said(node, begin) == ["1"]
    assert node.core.refused("1", now_ms=node.now_ms) == []
    assert node.core.left_out == ["1"]


def test_what_is_said_of_the_database_goes_before_old_versions():
    """Old versions are left out one by one; if that is not enough, the statement is tried again later."""
    node = Node("b")
    node.settle()
    node.has(0, of=ONE)
    node.core.activate(TWO)
    node.has(0, of=TWO)
    said_of_all = node.database
    effects = node.core.refused_database(said_of_all, now_ms=node.now_ms)
    assert effects == [Withdraw("1"), PublishDatabase(said_of_all)]
    node.published.pop("1")
    assert node.core.left_out == ["1"]
    assert node.core.refused_database(said_of_all, now_ms=node.now_ms) == []
    node.database = None
    node.step(RETRY_MS - 1)
    assert (node.database, node.core.wakes_at_ms) == (None, node.now_ms + 1)
    node.step(1)
    assert node.database == said_of_all


def test_what_cannot_be_said_any_more_is_withdrawn():
    """A smaller statement that does not fit (for its longer identity, say) must not leave the larger one."""
    node = Node()
    node.has(0, 1)
    node.has(0)
    assert node.core.refused("1", now_ms=node.now_ms) == [Withdraw("1")]
    assert node.core.is_withdrawn("1", some(0, 1))


def test_told_means_all_of_it():
    """The statement is complete after all copies on the disk are published."""
    node = Node()
    node.step()
    assert not node.database.is_complete
    node.has(0)
    assert not node.database.is_complete
    node.core.opened()
    node.step()
    assert node.database.is_complete


def test_the_database_says_what_matters_at_once():
    """Active, held and refuted versions are published at once; the next and the newest once a second."""
    node = Node("b")
    node.settle()
    node.has(0)
    node.step(1_000)
    begin = len(node.effects)
    node.copy("7", digest=TWO.digest, partitions=4)
    node.step()
    node.copy("8", digest=TWO.digest, partitions=4)
    node.step(10)
    node.core.hold("7")
    node.step(10)
    told = [effect.statement for effect in node.effects[begin:] if isinstance(effect, PublishDatabase)]
    assert [(each.newest, each.hold) for each in told] == [("7", None), ("8", "7")]


def test_others_do_not_change_what_is_said():
    """Statements of other members can change only the next version."""
    node = Node("b")
    node.settle()
    node.has(0)
    node.hear("b", statement("b", (0, 1)), database=active(TWO))
    assert said(node) == ["1"]

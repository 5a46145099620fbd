"""Lives of versions in given states, and decisions over them."""

from dataclasses import replace

from gossipkv.dataset.lifecycle.copy_states import CopyState, VersionCopy
from gossipkv.dataset.lifecycle.decisions import check, decide
from gossipkv.dataset.lifecycle.version_states import Life, VersionState, VersionWord
from gossipkv.dataset.source.files import SourceFile
from gossipkv.dataset.source.listing import SourceVersion
from gossipkv.placement.identity import VersionIdentity
from gossipkv.placement.partition_set import PartitionSet

RETIRE_MS = 1000


def source(name, size=1, waiting_for=None, files=1):
    return SourceVersion("db", name, (SourceFile("part-0", "/x", size, 1),) * files, waiting_for)


WHOLE = PartitionSet.whole(1)
IDENTITY = VersionIdentity("db", "v", "digest", 1, "sequins", regrouped=False)

COPIES = {
    VersionWord.SEEN: CopyState.WANTED,
    VersionWord.BUILDING: CopyState.BUILDING,
    VersionWord.ERROR: CopyState.ERROR,
}
TOWARDS_CLIENTS = {VersionWord.ACTIVE: VersionState.ACTIVE, VersionWord.RETIRING: VersionState.RETIRING}


def life(name, word=VersionWord.SEEN, **fields):
    """Return a life in the state of this word, at the source unless told otherwise."""
    copy = VersionCopy(COPIES.get(word, CopyState.READY), fields.pop("trouble", None), share=WHOLE)
    if fields.pop("open", word not in COPIES):
        copy.begin_open(IDENTITY, WHOLE)
        copy.damaged = word in COPIES
    found = Life(name, TOWARDS_CLIENTS.get(word, VersionState.KNOWN), copy, **({"source": source(name)} | fields))
    assert found.word is word
    return found


def begin(one):
    one.copy.begin(one.source)


def finish(one):
    one.copy.finish(IDENTITY, WHOLE)


def by_name(lives):
    return {one.name: one for one in lives}


def what(*lives, verdicts=None, active=None, hold=None, now_ms=0):
    """Return the decision, of a node alone unless told otherwise."""
    verdicts = verdicts or Alone(by_name(lives))
    return decide(lives, verdicts, active=active, hold=hold, now_ms=now_ms, retire_after_ms=RETIRE_MS)


def checked(lives, active, *, switching=False):
    """Assert the invariants of a database, for a node alone."""
    check(lives, Alone(by_name(lives)), active, switching=switching)


class ScriptedVerdicts:
    """Scripted verdicts of a cluster: versions that passed, may be switched to or may retire, and shares."""

    def __init__(self, passed=(), switch=(), retire=(), share=None, refuted=(), *, short=()):
        self.passed, self.may_switch, self.may_retire, self.is_short = (
            names.__contains__ for names in (passed, switch, retire, short)
        )  # fmt: skip
        self.share, self.refuted = (lambda _: share), (lambda _: refuted)


def share_of(*some):
    return PartitionSet.of(4, some)


def partial(*here, share, **fields):
    """Return a life with a copy that has some of four partitions."""
    one = Life("v1", copy=VersionCopy(CopyState.READY), source=source("v1", files=4), **fields)
    one.copy.begin_open(replace(IDENTITY, partitions=4), share_of(*here))
    one.copy.want(share_of(*share))
    return one


class Alone:
    """The verdicts of a node alone: every partition is its share, and complete versions may be served."""

    def __init__(self, lives):
        self._lives = lives

    def share(self, version):
        """Return all partitions, counted by the build, else by the files of the source."""
        life = self._lives[version]
        copy, listed = life.copy, () if life.source is None else life.source.files
        if copy is not None and copy.here is not None and (not copy.damaged or not listed):
            return PartitionSet.whole(copy.here.partitions)
        return PartitionSet.whole(len(listed)) if listed else None

    def passed(self, version):
        """True if the version is open; one that was never served must be complete."""
        life = self._lives.get(version)
        return life is not None and life.open and (life.state is not VersionState.KNOWN or _is_whole(life))

    def may_switch(self, version):
        """True if every partition is here; a damaged retiring version is rebuilt."""
        life = self._lives[version]
        return _is_whole(life) and (life.is_ready or life.state is VersionState.RETIRING)

    def is_short(self, version):
        assert version in self._lives
        return False

    def may_retire(self, version):
        """True if the version is here, since there is no other member."""
        return version in self._lives

    def refuted(self, digest):
        """Return nothing: a node with every partition has read every file and every stray."""
        assert digest
        return ()


def _is_whole(life):
    here = None if life.copy is None else life.copy.here
    return here is not None and len(here) == here.partitions

"""Situations of clusters, for tests of the verdict."""

from __future__ import annotations

from gossipkv.status.verdict import ATTENTION, COMES, STUCK, TROUBLE, WELL
from tests.unit.status.reports import AWAY, LEFT, PLAIN, TABLE, UNDECIDED, entry, of_two, said, some, without_n3

BROKEN = {"error": {"message": "part-0: line 2: no TAB", "file": "part-0"}, "state": "ERROR"}
NO_ROOM = {"state": "SEEN", "needed_bytes": 5, "waiting_for": "5 B of room on the disk"}
LACKS = {"partition_count": 8, "replication": 2, "reassign_after_ms": 60_000, "at_source": True}
HALF = {"state": "BUILDING", "progress": {"done": 0.5, "remaining_s": 40.0}}
VERSIONS = "protocol version 3, not protocol versions 1 to 2"
MAJORITY = {"partition": "01", "why": "1 of 3 replicas can confirm a write, but a majority is 2"}


def changing(size):
    """Return the error of a build that met a file still being written."""
    return {"state": "ERROR", "error": {"message": f"part-1 changed: {size} bytes", "file": "part-1", "again": True}}


def lacking(key, *partitions, **more):
    """Return facts of an active version some of whose partitions have no or too few owners."""
    return {"databases": {"geo": entry(version={**LACKS, key: some(*partitions), **more})}}


# Name, reports, level, first reason, and the state of a coming version.
SITUATIONS = [
    ("calm", said(), WELL, None, None),
    ("nothing at all", said(n1={"geo": PLAIN}), WELL, None, None),
    # Members
    ("one is dead", said(members={"n3": "dead"}), ATTENTION, "n3 is dead", None),
    ("one is suspected", said(members={"n3": "suspect"}, silent={"n3": "x"}), ATTENTION, "n3 is suspect", None),
    ("suspected, and answers", said(members={"n3": "suspect"}), WELL, None, None),
    (
        "one does not answer",
        said(silent={"n2": "no answer"}),
        ATTENTION,
        "n2 did not answer how it is: no answer",
        None,
    ),
    ("two do not", said("n1", silent={"n2": "x", "n3": "x"}), TROUBLE, "n1 hears 1 of 3 members", None),
    ("of two one dies", of_two(n1={"isolated": True}), ATTENTION, "n2 is dead", None),
    (
        "a link is cut",
        said(n1={"unreached": {"n2": "no answer in 2 s"}}),
        ATTENTION,
        "n1 and n2 do not reach each other, though other nodes reach both: no answer in 2 s",
        None,
    ),
    (
        "nobody reaches it",
        said(silent={"n2": "x"}, all_say={"unreached": {"n2": "reset"}}),
        ATTENTION,
        "n2 did not answer how it is: x",
        None,
    ),
    ("cut off", said(n1={"isolated": True}), TROUBLE, "n1 is cut off: it hears from no other node", None),
    (
        "cut off, and more",
        said(members={"n2": "dead", "n3": "dead"}, n1={"isolated": True, "source_error": "gone"}),
        TROUBLE,
        "n1 is cut off",
        None,
    ),
    ("another is cut off", said(n2={"isolated": True}), TROUBLE, "n2 is cut off: it hears from no other node by", None),
    ("most are dead", said(members={"n2": "dead", "n3": "dead"}), TROUBLE, "n1 hears 1 of 3 members", None),
    ("draining", said(n2={"draining": True}), ATTENTION, "n2: about to end", None),
    (
        "a certificate ends",
        said(all_say={"certificate_close": "a day"}),
        ATTENTION,
        "n1, n2 and n3: the certificate expires at a day",
        None,
    ),
    (
        "a certificate has ended",
        said(n2={"certificate_over": "x"}),
        TROUBLE,
        "n2: the certificate expired at",
        None,
    ),
    # Troubles of nodes
    ("silent", said(n2={"silent": "no space left"}), TROUBLE, "n2: silent, so nothing is built", None),
    ("no source anywhere", said(all_say={"source_error": "gone"}), TROUBLE, "n1, n2 and n3: source: gone", None),
    ("tables closed", said(n3={"tables_closed": "EIO"}), TROUBLE, "n3: tables are closed: EIO", None),
    ("tables lost", said(n3={"tables_lost": "damaged"}), TROUBLE, "n3: tables are closed for good: damaged", None),
    ("log damaged", said(n3={"log_damage": "log 3"}), TROUBLE, "n3: tables: log kept for lagging", None),
    ("unpublished", said(n1={"publish_error": "full"}), TROUBLE, "n1: other nodes do not learn all", None),
    (
        "a node of other protocol versions",
        said(members={"n3": "dead"}, n1={"misfits": {"n3": VERSIONS}}, n2={"misfits": {"n3": VERSIONS}}),
        ATTENTION,
        f"n3: {VERSIONS} as n1 and n2",
        None,
    ),
    ("claimed twice", said(all_say={"claimed_twice": ["n2"]}), TROUBLE, "two nodes are called n2", None),
    ("unreadable", said(n1={"unreadable": ["n3"]}), TROUBLE, "n3: some nodes cannot read", None),
    ("copies aside", said(n1={"copies_aside": 3}), ATTENTION, "n1: 3 replicas of tables are quarantined", None),
    # Datasets
    ("an error of all", said(databases={"geo": entry(error="hold: no 3")}), TROUBLE, "geo: hold: no 3", None),
    ("an error of one", said(n2={"geo": entry(error="EIO")}), TROUBLE, "geo: EIO (n2)", None),
    (
        "an upgrade",
        said(databases={"geo": entry(awaits="2", version=HALF)}),
        WELL,
        None,
        COMES,
    ),
    (
        "the first version",
        said(databases={"geo": entry(None, "1", HALF)}),
        ATTENTION,
        "geo cannot be read yet: version 1 is coming, 50 % done, 40 s left; 3 nodes build",
        COMES,
    ),
    (
        "not looked at yet",
        said(databases={"geo": entry(None, "")}),
        ATTENTION,
        "geo cannot be read yet: a version is coming",
        COMES,
    ),
    ("a newcomer", said(n3={"geo": entry(None, "")}), WELL, None, COMES),
    ("no version", said(databases={"geo": entry(None)}), TROUBLE, "geo: nothing can be read", None),
    (
        "the first version is broken",
        said(databases={"geo": entry(None, "1", BROKEN)}),
        TROUBLE,
        "geo 1: nothing can be read: n1, n2 and n3 cannot build it: part-0: line 2: no TAB",
        STUCK,
    ),
    (
        "one cannot build, and has no share where it is asked",
        said(
            databases={"geo": entry(awaits="2", version={"state": "SEEN"})},
            n2={"geo": entry(awaits="2", version=BROKEN)},
        ),
        TROUBLE,
        "geo 2: n2 cannot build it: part-0: line 2: no TAB",
        STUCK,
    ),
    (
        "one cannot build, others bring it",
        said(
            databases={"geo": entry(awaits="2", version={"state": "AVAILABLE", "brought": True})},
            n2={"geo": entry(awaits="2", version=BROKEN)},
        ),
        ATTENTION,
        "geo 2: n2 cannot build it; other nodes can: part-0",
        COMES,
    ),
    (
        "one cannot build for its own reasons",
        said(
            databases={"geo": entry(awaits="2", version={"state": "SEEN"})},
            n2={"geo": entry(awaits="2", version={"state": "ERROR", "error": {"message": "out of memory"}})},
        ),
        ATTENTION,
        "geo 2: n2 cannot build it; other nodes can: out of memory",
        COMES,
    ),
    (
        "and nobody else has the source",
        said(
            databases={"geo": entry(awaits="2", version={"state": "SEEN"})},
            all_say={"sourceless": True},
            n2={"sourceless": None, "geo": entry(awaits="2", version={"state": "ERROR", "error": {"message": "EIO"}})},
        ),
        TROUBLE,
        "geo 2: n2 cannot build it: EIO",
        STUCK,
    ),
    (
        "a mended file is read again",
        said(
            databases={"geo": entry(awaits="2", version=BROKEN)},
            n1={"geo": entry(awaits="2", version=HALF)},
        ),
        ATTENTION,
        "geo 2: n2 and n3 cannot build it; other nodes can: part-0",
        COMES,
    ),
    (
        "an older version was broken",
        said(databases={"geo": entry("2", version=None, versions={"1": BROKEN, "0": NO_ROOM})}),
        WELL,
        None,
        None,
    ),
    (
        "it was broken, and one has not switched yet",
        said(
            databases={"geo": entry("2", versions={"1": BROKEN})},
            n2={"geo": entry("0", versions={"1": BROKEN})},
        ),
        TROUBLE,
        "geo 1: n1, n2 and n3 cannot build it",
        None,
    ),
    (
        "files that are still written",
        said(
            n1={"geo": entry(awaits="2", version=changing(5))},
            n2={"geo": entry(awaits="2", version=changing(9))},
            n3={"geo": entry(awaits="2", version=changing(7))},
        ),
        ATTENTION,
        "geo 2: n1, n2 and n3 cannot build it; the build is retried: part-1 changed: 5 bytes",
        COMES,
    ),
    (
        "the first version waits for its files",
        said(databases={"geo": entry(None, "1", {"state": "SEEN", "waiting_for": "a data file"})}),
        ATTENTION,
        "geo cannot be read yet: version 1 waits for a data file",
        COMES,
    ),
    (
        "held on what is nowhere",
        said(databases={"geo": entry(awaits="7", version={"nowhere": True}, error="hold: version 7 is nowhere")}),
        TROUBLE,
        "geo: hold: version 7 is nowhere",
        STUCK,
    ),
    (
        "a version that shrank",
        said(databases={"geo": entry(awaits="2", version={"state": "AVAILABLE", "brought": True, "withheld": "few"})}),
        ATTENTION,
        "geo 2: n1, n2 and n3 will not switch to it: few",
        STUCK,
    ),
    (
        "a first version that is empty",
        said(databases={"geo": entry(None, "1", {"state": "AVAILABLE", "brought": True, "withheld": "none"})}),
        TROUBLE,
        "geo 1: nothing can be read: n1, n2 and n3 will not switch to it: none",
        STUCK,
    ),
    (
        "too few nodes for so many copies",
        said(**lacking("under_replicated", 1, replication=4)),
        ATTENTION,
        "geo 1: 1 of 8 partitions on fewer than 4 live nodes",
        None,
    ),
    (
        "no room",
        said(n2={"geo": entry(awaits="2", version=NO_ROOM)}),
        TROUBLE,
        "geo 2: n2 waits for 5 B of room",
        COMES,
    ),
    (
        "missing",
        said(**lacking("missing", 1, 5, away=["n3"])),
        TROUBLE,
        "geo 1: 2 of 8 partitions without a live",
        None,
    ),
    ("all missing", said(**lacking("missing", *range(8))), TROUBLE, "geo 1: nothing can be read", None),
    (
        "too few, since one is dead",
        said(members={"n3": "dead"}, **lacking("under_replicated", 1, 2, 3, away=["n3"], switched_ms=5)),
        ATTENTION,
        "n3 is dead",
        None,
    ),
    ("too few for long", said(**lacking("under_replicated", 1, switched_ms=61_000)), ATTENTION, "geo 1: 1 of 8", None),
    ("too few, nobody knows how long", said(**lacking("under_replicated", 1)), ATTENTION, "geo 1: 1 of 8", None),
    (
        "second copies on their way",
        said(**lacking("under_replicated", 1, switched_ms=5_000, **HALF)),
        WELL,
        "geo 1: more copies are being made, 40 s left: 1 of 8 partitions",
        None,
    ),
    (
        "second copies that take long",
        said(**lacking("under_replicated", 1, switched_ms=61_000, **HALF)),
        ATTENTION,
        "geo 1: more copies are being made, 40 s left: 1 of 8 partitions",
        None,
    ),
    (
        "too few, since owners have left",
        said(**lacking("under_replicated", 1, away=["n4", "n5"], switched_ms=5)),
        ATTENTION,
        "geo 1: 1 of 8 partitions on fewer than 2 live nodes: 1; no other node builds them, since",
        None,
    ),
    (
        "too few, and repaired later",
        said(**lacking("under_replicated", 1, away=["n4"], repair_after_ms=600_000)),
        ATTENTION,
        "geo 1: 1 of 8 partitions on fewer than 2 live nodes: 1; other nodes build them after 10 min 0 s",
        None,
    ),
    ("conflicts", said(**lacking("conflicts")), WELL, None, None),
    (
        "different contents",
        said(databases={"geo": entry(version={"conflicts": [{"nodes": ["n1"], "digest": "ab"}, {"nodes": ["n2"]}]})}),
        TROUBLE,
        "geo 1: different contents under one name",
        None,
    ),
    (
        "files differ",
        said(databases={"geo": entry(version={**LACKS, "disputes": [{"nodes": ["n1", "n2"], "partitions": some(4)}]})}),
        TROUBLE,
        "geo 1: the files of n1 and n2 differ for 1 of 8 partitions: 4",
        None,
    ),
    (
        "no room in the tree",
        said(n2={"geo": entry(version={"unpublished": True})}),
        TROUBLE,
        "geo 1: the tree has",
        None,
    ),
    ("other versions", said(n2={"geo": entry("2")}), ATTENTION, "geo: active are 2 on n2, 1 on n1 and n3", None),
    ("held", said(n2={"geo": entry("0", hold="0")}), WELL, "geo: active are 1 on n1 and n3, 0 on n2", None),
    (
        "held by an order",
        said(databases={"geo": entry("0", hold="0", held_by="cluster")}),
        WELL,
        "geo is held on 0 at n1, n2 and n3: run `gossipkv databases release geo` when a newer version is good",
        None,
    ),
    (
        "held by settings",
        said(databases={"geo": entry("0", hold="0", held_by="settings")}),
        WELL,
        "geo is held on 0 at n1, n2 and n3: remove `hold` from [databases.geo] there when a newer version is good",
        None,
    ),
    (
        "during a switch",
        said(databases={"geo": entry(awaits="2", version={"state": "AVAILABLE"})}, n2={"geo": entry("2")}),
        WELL,
        "geo: active are 2 on n2, 1 on n1 and n3",
        COMES,
    ),
    (
        "doubtful",
        said(n2={"geo": entry(version={"warnings": ["f: the first line looks like a header"]})}),
        ATTENTION,
        "geo 1: f: the first line looks like a header",
        None,
    ),
    ("strays", said(n2={"geo": entry(version={"first_stray": {"key": b"k"}})}), WELL, "geo 1: grouped by", None),
    # Tables
    ("a table", said(databases={"carts": TABLE}), WELL, None, None),
    ("its clock", said(databases={"carts": {**TABLE, "error": "no writes"}}), TROUBLE, "carts: no writes", None),
    (
        "its majority",
        said(members={"n2": "dead", "n3": "suspect"}, databases={"carts": {**TABLE, "unwell": [MAJORITY]}}),
        TROUBLE,
        "carts: partition 01: 1 of 3 replicas can confirm",
        None,
    ),
    (
        "late",
        said(databases={"carts": {**TABLE, "lags": {"n2": {"seconds": 3.0, "records": 7}}}}),
        ATTENTION,
        "carts: n2",
        None,
    ),
    (
        "late for long",
        said(databases={"carts": {**TABLE, "lags": {"n2": {"seconds": 300.0, "records": 7}}}}),
        ATTENTION,
        "carts: n2 lacks 7 records, for 300.0 s",
        None,
    ),
    ("moving", said(n1={"carts": {**TABLE, "moving": {"PROPOSED": 1}}}), WELL, None, None),
    (
        "waits for who is down",
        said(members={"n3": "dead"}, databases={"carts": {**TABLE, "waits_for": ["n3"]}}),
        ATTENTION,
        "n3 is dead",
        None,
    ),
    (
        "waits for who was forgotten",
        said(databases={"carts": {**TABLE, "waits_for": ["n9"]}}),
        ATTENTION,
        "carts: moves of partitions wait for n9, which is down",
        None,
    ),
    (
        "copies are missing",
        said(n1={"carts": {**TABLE, "missing": 1200, "fewest": 2, "replication": 3}}),
        ATTENTION,
        "carts: 2 of 3 wanted replicas: 1,200 replicas of partitions are missing, and will be made again",
        None,
    ),
    (
        "smeared",
        said(n2={"carts": {**TABLE, "smeared": {"puts": 1, "bytes": 5, "until_s": 95.2}}}),
        WELL,
        "carts: 1 put waits at n2, for 1 min 35 s at most",
        None,
    ),
    (
        "smeared late",
        said(n2={"carts": {**TABLE, "smeared": {"puts": 1200, "bytes": 5, "until_s": 9.0, "why": "no host"}}}),
        ATTENTION,
        "carts: 1,200 puts wait at n2, and no replica takes them: no host",
        None,
    ),
    ("aside", said(n2={"carts": {**TABLE, "aside": {"copies": 1, "bytes": 5}}}), ATTENTION, "carts: a copy is", None),
    (
        "passed over",
        said(n2={"carts": {**TABLE, "passed_over": {"n3": 3599}}}),
        ATTENTION,
        "carts: nothing moves to n3 for 59 min 59 s, because two moves there made no progress",
        None,
    ),
    ("nobody remembers a host", without_n3(n1={"carts": AWAY}), ATTENTION, "n3 is not known to any node", None),
    (
        "a host was stopped",
        without_n3(n1={"carts": LEFT}),
        ATTENTION,
        "n3 is stopped, although tables have partitions",
        None,
    ),
    ("it lives elsewhere", said(n1={"carts": AWAY}), WELL, None, None),
    ("another map's majority", said(databases={"carts": UNDECIDED}), WELL, None, None),
    (
        "its register has none",
        said(members={"n2": "dead", "n3": "suspect"}, silent={"n3": "x"}, databases={"carts": UNDECIDED}),
        TROUBLE,
        "n1 hears 1 of 3 members",
        None,
    ),
    ("racks", said(databases={"carts": {**TABLE, "warning": "2 groups"}}), ATTENTION, "carts: 2 groups", None),
    ("who decides", said(all_say={"acceptors": ["n1", "n2", "n3"]}), WELL, None, None),
    (
        "no majority of those",
        said(all_say={"acceptors": ["n1", "n2", "n3"]}, members={"n2": "dead", "n3": "dead"}),
        TROUBLE,
        "n1 hears 1 of 3 members",
        None,
    ),
    # Pairs
    (
        "the worse first",
        said(members={"n3": "dead"}, n2={"geo": entry(error="EIO")}),
        TROUBLE,
        "geo: EIO (n2)",
        None,
    ),
    ("two of one level", said(members={"n3": "dead"}, n2={"draining": True}), ATTENTION, "n3 is dead", None),
]

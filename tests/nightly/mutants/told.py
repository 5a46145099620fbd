"""Bugs planted in what a node tells of itself over the wire: counts by database, who has answered, times, readiness."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Mutant, planted

COUNTS = "tests/unit/serving/test_read_counts.py"
BY_HAND = "tests/unit/serving/test_forwarding.py"
READINESS = "tests/unit/node/test_readiness.py"
HISTOGRAM = "tests/unit/wire/test_latency.py"
SURVEY = "tests/unit/dataset/cluster/test_survey.py"
MANIFEST = "tests/unit/dataset/local/test_manifest.py"
USAGE = "tests/unit/processes/test_usage.py"

SHARING = "tests/unit/node/peers/test_sharing.py"
PUBLICATION = "tests/unit/dataset/cluster/test_publication.py"
EXCHANGE = "tests/unit/gossip/anti_entropy/test_exchange.py"

MUTANTS_OF_WHAT_IS_TOLD: tuple[Mutant, ...] = (
    planted(
        "what is published is left to gossip alone",
        "gossipkv.node.peers.sharing:Sharing.perform",
        "self._tell_news()",
        "pass",
        SHARING,
    ),
    planted(
        "members are taken in at each look",
        "gossipkv.node.peers.sharing:Sharing.look",
        "if self._places.changed or known != self._known:  # Each look has a price for each member, and most are idle.",
        "if True:",
        SHARING,
    ),
    planted(
        "who is known in another way is taken in when a claim changes",
        "gossipkv.node.peers.sharing:Sharing.look",
        "if self._places.changed or known != self._known:  # Each look has a price for each member, and most are idle.",
        "if self._places.changed or not self._known:",
        SHARING,
    ),
    planted(
        "each news are all that was ever published",
        "gossipkv.gossip.anti_entropy.exchange:Exchange.news",
        "before, self._told = self._told, self._tree.head(self._own)",
        "before = self._told",
        EXCHANGE,
    ),
    planted(
        "news leave out what was withdrawn and published before the last of it",
        "gossipkv.gossip.anti_entropy.exchange:Exchange.news",
        "before, self._told = self._told, self._tree.head(self._own)",
        "before = self._told = self._tree.head(self._own)._replace(version=self._tree.head(self._own).version - 1)",
        EXCHANGE,
    ),
    planted(
        "the end of a build is told when its time has come",
        "gossipkv.dataset.cluster.publication:Publication._when",
        "if shown is None or (shown.building and not statement.building):",
        "if shown is None:",
        PUBLICATION,
    ),
    planted(
        "what was counted of a version goes with it",
        "gossipkv.serving._published:PublishedTable.inherit",
        "self.keep(&database.name, &version.counts)",
        "pass",
        COUNTS,
    ),
    planted(
        "a read that is answered here after all counts twice",
        "gossipkv.serving._forwarded_get:answer_here",
        "lookup.version.database.counts.asked_again += 1",
        "pass",
        COUNTS,
    ),
    planted(
        "a miss of another node is a hit",
        "gossipkv.serving._forwarded_get:count_answer",
        "count_value(&database.counts, result)",
        "database.counts.hits += 1",
        COUNTS,
    ),
    planted(
        "whoever asks is told to have answered",
        "gossipkv.serving._forwarded_get:pass_answer",
        "cdef const Blob* node = &asking.peers.routes.peers[column].name",
        "cdef const Blob* node = &asking.own_name",
        BY_HAND,
    ),
    planted(
        "a frame grows beyond its limit by who has answered",
        "gossipkv.serving._forwarded_get:put_explained",
        "if out.end - before > asking.read_limits.max_frame:",
        "if False:",
        BY_HAND,
    ),
    planted(
        "a bucket has what took as long as its bound",
        "gossipkv.wire._latency:LatencyHistogram.buckets",
        "while bucket < histogram_buckets_below(bits):",
        "while bucket <= histogram_buckets_below(bits):",
        HISTOGRAM,
    ),
    planted(
        "a node that is alone has not joined any more",
        "gossipkv.node.readiness:Readiness.to_map",
        "self._joined = self._joined or self._joins(now_ms)",
        "self._joined = self._joins(now_ms)",
        READINESS,
    ),
    planted(
        "each owner has its own time",
        "gossipkv.dataset.cluster.survey:Survey.source_ms",
        "return min((said.source_ms for said in owners if said.source_ms > 0), default=None)",
        "return max((said.source_ms for said in owners if said.source_ms > 0), default=None)",
        SURVEY,
    ),
    planted(
        "a copy forgets the time of its source",
        "gossipkv.dataset.local.manifest:to_body",
        '"source_ms": manifest.source_ms,',
        '"source_ms": 0,',
        MANIFEST,
    ),
    planted(
        "the listing's own descriptor is counted",
        "gossipkv.processes.usage:_descriptors",
        'return {"descriptors": OPEN_FILES.stat().st_size or sum(1 for _ in OPEN_FILES.iterdir()) - 1}',
        'return {"descriptors": OPEN_FILES.stat().st_size or sum(1 for _ in OPEN_FILES.iterdir())}',
        USAGE,
    ),
)

"""Bugs planted in what is told of a database that nodes share."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Mutant, planted

SPREAD = "tests/unit/dataset/cluster/test_spread.py"
REPORT = "tests/unit/dataset/test_report.py"
COMMANDS = "tests/unit/cli/test_commands.py"
VERDICT = "tests/unit/status/test_verdict.py"

MUTANTS_OF_STATUS: tuple[Mutant, ...] = (
    planted(
        "what the suspected have is missing",
        "gossipkv.placement.holders:Holders.under_replicated",
        "ready = (holder.ready for holder in self.all if holder.state in LIVE)",
        "ready = (holder.ready for holder in self.all if holder.state is HolderState.ALIVE)",
        SPREAD,
    ),
    planted(
        "a gate is said to wait for less than it does",
        "gossipkv.dataset.cluster.spread:Spread._uncovered",
        "alive = {holder.name for holder in holders.all if holder.state is HolderState.ALIVE}",
        "alive = {holder.name for holder in holders.all}",
        SPREAD,
    ),
    planted("a local status tells of others", "gossipkv.dataset.report:status", "if not local:", "if True:", REPORT),
    planted(
        "the status is 0 though something is wrong",
        "gossipkv.cli.status:status",
        "return FAILED if lacking or (made is not None and made.level == TROUBLE) else 0",
        "return FAILED if lacking else 0",
        COMMANDS,
    ),
    planted(
        "a wait goes on where nothing will come",
        "gossipkv.cli.status:_wait",
        "if time.monotonic() >= deadline_s or all(each.state == STUCK for each in coming.values()):",
        "if time.monotonic() >= deadline_s + 5 or not coming:",
        COMMANDS,
    ),
    planted(
        "who asks is the only one that is judged",
        "gossipkv.status.judging.judge:_by_database",
        "for node in sorted(reports):",
        "for node in sorted(reports)[:1]:",
        VERDICT,
    ),
    planted(
        "what is cut off is believed of others",
        "gossipkv.status.judging.judge:_Databases.__init__",
        "self._shared = frozenset(said.reports.keys() - cut_off) or frozenset(said.reports)",
        "self._shared = frozenset(said.reports)",
        VERDICT,
    ),
    planted(
        "that a node is cut off is said somewhere",
        "gossipkv.status.judging.judge:judge",
        "reasons = [*of_members(said, states), *of_nodes(said), *of_acceptors(answering), *judged.reasons]",
        "reasons = [*of_nodes(said), *of_acceptors(answering), *judged.reasons, *of_members(said, states)]",
        VERDICT,
    ),
    planted(
        "who did not answer is not named",
        "gossipkv.status.judging.members:of_members",
        'if states.get(name) not in {"dead", "suspect"}:',
        "if False:",
        VERDICT,
    ),
    planted(
        "a broken file at the source is waited for",
        "gossipkv.status.judging.datasets:Dataset._is_stuck",
        "return bool(failed) and (any(file is not None for _, _, file, _ in failed) or not self._able - nodes)",
        "return bool(failed) and not self._able - nodes",
        VERDICT,
    ),
    planted(
        "a build that fails is the end though others bring it",
        "gossipkv.status.judging.datasets:Dataset._is_stuck",
        'if any(told.get("brought") is True or told.get("state") == "BUILDING" for told in said.values()):',
        "if not said:",
        VERDICT,
    ),
    planted(
        "second copies on their way are a worry",
        "gossipkv.status.judging.datasets:Dataset._few",
        "is_young = for_ms is not None and for_ms < patience_ms",
        "is_young = False",
        VERDICT,
    ),
    planted(
        "others are said to build what none can",
        "gossipkv.status.judging.datasets:Dataset._lost",
        "if able and not all(self._is_gone(node, version) for node in able):",
        "if True:",
        VERDICT,
    ),
    planted(
        "no majority of who decides is well",
        "gossipkv.status.judging.tables:of_acceptors",
        "if answering and len(here) * 2 <= len(answering):",
        "if answering and not here:",
        VERDICT,
    ),
    planted(
        "a file that is still written is broken",
        "gossipkv.status.judging.datasets:Dataset._is_stuck",
        "if any(again for _, _, _, again in failed):",
        "if False:",
        VERDICT,
    ),
)

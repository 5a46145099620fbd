"""Bugs planted in what is here of versions, and in what clients get of them."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Mutant, planted

STORE = "gossipkv.dataset.local.store:VersionStore"
DECISIONS = "gossipkv.dataset.lifecycle.decisions"
PARTIAL = "tests/unit/dataset/local/test_partial_versions.py"
COPIES = "tests/unit/dataset/lifecycle/test_copies.py"
REMEMBERED = "tests/unit/dataset/test_remembered.py"
VERDICTS = "tests/unit/dataset/lifecycle/test_verdicts.py"

MUTANTS_OF_COPIES: tuple[Mutant, ...] = (
    planted(
        "the manifest is replaced before the partitions are renamed",
        f"{STORE}.add_partitions",
        "for file in built.files_here:",
        "write_manifest(self.files, target, known.joined(built))\n            for file in built.files_here:",
        PARTIAL,
    ),
    planted(
        "a partition that is dropped stays in the manifest",
        f"{STORE}.drop_partitions",
        "write_manifest(self.files, target, left)",
        "pass",
        PARTIAL,
    ),
    planted(
        "partitions of another identity are added",
        f"{STORE}.add_partitions",
        "if built.identity != known.identity:",
        "if False:",
        PARTIAL,
        by="assertion of Manifest.joined",
    ),
    planted(
        "what is whole here is switched to before its gate",
        f"{DECISIONS}:decide",
        "switch = next((name for name in switchable if verdicts.may_switch(name)), None)",
        "switch = max((one.name for one in ordered if one.open and one.switchable(active, hold)), default=None)",
        VERDICTS,
    ),
    planted(
        "what others need goes when it is quiet here",
        f"{DECISIONS}:decide",
        "remove = tuple(dict.fromkeys((*lost, *(name for name in quiet if verdicts.may_retire(name)))))",
        "remove = tuple(dict.fromkeys((*lost, *quiet)))",
        VERDICTS,
    ),
    planted(
        "what others had outlives them here",
        f"{DECISIONS}:decide",
        "remove = tuple(dict.fromkeys((*lost, *(name for name in quiet if verdicts.may_retire(name)))))",
        "remove = tuple(name for name in quiet if verdicts.may_retire(name))",
        VERDICTS,
    ),
    planted(
        "clients get a version before its gate",
        "gossipkv.dataset.database:Database.held",
        "found.append(self._held(life, version.identity, version))",
        "found.append(self._held(life, version.identity, version, passed=True))",
        COPIES,
    ),
    planted(
        "what is dropped is still served",
        "gossipkv.dataset.local.version:Version.without_partitions",
        "gone[partition], left[partition] = left[partition], None",
        "gone[partition] = left[partition]",
        COPIES,
    ),
    planted(
        "the share is not kept",
        "gossipkv.dataset.local.store:_with_share",
        "return replace(manifest, share=None if len(share) == share.partitions else share)",
        "return manifest",
        COPIES,
    ),
    planted(
        "what is refuted is answered until it is built anew",
        "gossipkv.dataset.lifecycle.copies:Copies.refute",
        "self._take_out(life, nursery)",
        "life.copy.begin_open(self.versions[life.name].identity, self.versions[life.name].here)",
        COPIES,
    ),
    planted(
        "a damaged copy is added to",
        "gossipkv.dataset.lifecycle.copy_states:Copy.lacks",
        "if self.share is None or self.here is None or self.damaged:",
        "if self.share is None or self.here is None:",
        VERDICTS,
    ),
    planted(
        "a refutation is forgotten at a restart",
        "gossipkv.dataset.cluster.part:PartInCluster.step",
        "self.refuted_document.note()",
        "pass",
        REMEMBERED,
    ),
    planted(
        "who held the active version is not written",
        "gossipkv.dataset.lifecycle.switching:Switching.note_owners",
        "self.note_change()",
        "pass",
        REMEMBERED,
    ),
    planted(
        "a rewrite that failed is not tried again",
        "gossipkv.dataset.rewriting:Rewriting._write_at_last",
        "said = error.message",
        "return",
        REMEMBERED,
    ),
)

"""The part of the kill table that is about the disk: what a node keeps, and what it does while it can keep nothing."""

from __future__ import annotations

from tests.nightly.mutants.mutant import DOCUMENT, GOSSIP, planted

SILENT = ("tests/unit/gossip/membership/test_silent.py",)

MUTANTS_OF_THE_DISK = (
    planted(
        "a document is not synced",
        f"{DOCUMENT}:replace_file",
        "files.sync(descriptor)",
        "pass",
        "tests/unit/storage/test_document.py",
    ),
    planted(
        "the name of a document is not synced",
        f"{DOCUMENT}:replace_file",
        "files.sync_directory(Path(target).parent)",
        "pass",
        "1",
        "4",
        "13",
        by="comes_back_as_itself",
    ),
    planted(
        "a document is written in its place",
        f"{DOCUMENT}:replace_file",
        'beside = f"{target}.tmp"',
        "beside = target",
        "tests/unit/storage/test_document.py",
    ),
    planted(
        "a slot is not synced",
        "gossipkv.storage.slots:write_slots",
        "files.sync(descriptor)",
        "pass",
        "power_losses",
        by="comes_back_as_itself",
    ),
    planted(
        "the slot that is whole is overwritten first",
        "gossipkv.storage.slots:write_slots",
        "for slot in sorted(range(SLOTS), key=whole.__contains__):",
        "for slot in range(SLOTS):",
        "tests/unit/storage/test_slots.py",
    ),
    planted(
        "a start does not raise its epoch",
        "gossipkv.node.identity:next_life",
        "return known._replace(epoch=max(known.epoch + 1, least_epoch)), is_new",
        "return known._replace(epoch=known.epoch or least_epoch), is_new",
        "restarts",
        by="comes_back_as_itself",
    ),
    planted(
        "a silent node answers a ping",
        f"{GOSSIP}.membership.outbox:Outbox.send",
        "if self.silent:",
        "if self.silent and message[0] != 2:  # ACK",
        "read_only",
        by="the_silent_are_unheard",
    ),
    planted(
        "a silent node answers a ping over TCP",
        f"{GOSSIP}.core:Gossip.reply",
        "return None if self._outbox.silent else self._inbox.reply(request, now_ms)",
        "return self._inbox.reply(request, now_ms)",
        *SILENT,
    ),
    planted(
        "a silent node announces itself and publishes",
        f"{GOSSIP}.membership.self_identity:SelfIdentity.settled",
        "return not self._storing and self._namesakes.claim is None and not self._outbox.silent",
        "return not self._storing and self._namesakes.claim is None",
        "read_only",
        by="only_real_epochs",
    ),
    planted(
        "a silent node probes, and hears no answer",
        f"{GOSSIP}.core:Gossip.on_changed",
        "if before not in REACHABLE and not self._outbox.silent:",
        "if before not in REACHABLE:",
        *SILENT,
    ),
    planted(
        "a silent node asks only once",
        f"{GOSSIP}.membership.joining:Joining._answered",
        "if seed.remembered and self._seeds.get(address) is seed and not self._outbox.silent:",
        "if seed.remembered and self._seeds.get(address) is seed:",
        *SILENT,
    ),
    planted(
        "a node that speaks again probes nobody",
        f"{GOSSIP}.core:Gossip.speak",
        "self._detector.newcomer(peer, now_ms)",
        "pass",
        *SILENT,
    ),
    planted(
        "a silent node reuses its epoch",
        "gossipkv.node.directory:DataDirectory.begin",
        "write_node(self.files, self.path, self._record)",
        "pass",
        "tests/unit/node/test_silent_start.py",
    ),
    planted(
        "a silent node keeps what is later, and not its epoch first",
        "gossipkv.node.directory:DataDirectory.keep",
        "if self.silence is not None:",
        "if False:",
        "tests/unit/node/test_silent_start.py",
    ),
    planted(
        "a silent node builds and switches",
        "gossipkv.dataset.database:Database._decide",
        "if not self._shared.may_write() or self.is_refused:",
        "if self.is_refused:",
        "tests/unit/dataset/test_read_only.py",
    ),
    planted(
        "a dataset is built under the name of a table",
        "gossipkv.dataset.database:Database._decide",
        "if not self._shared.may_write() or self.is_refused:",
        "if not self._shared.may_write():",
        "tests/unit/dataset/test_names.py",
    ),
    planted(
        "a silent node refreshes",
        "gossipkv.node.methods:Handlers._refresh",
        "if silence is not None:",
        "if False:",
        "tests/unit/node/test_methods.py",
    ),
    planted(
        "a silent node claims a place",
        "gossipkv.node.gossip:ShardIdTimer.start",
        "if not self._core.silent:",
        "if True:",
        "tests/unit/node/test_gossip.py",
    ),
)

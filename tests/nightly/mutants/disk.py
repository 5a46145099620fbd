"""The part of the kill table that is about the disk: what a node keeps, and what it does while it can keep nothing."""

from __future__ import annotations

from tests.nightly.mutants.mutant import DOCUMENT, GOSSIP, Edit, Mutant

SILENT = ("tests/unit/gossip/membership/test_silent.py",)

MUTANTS_OF_THE_DISK = (
    Mutant(
        "a document is not synced",
        (
            Edit(
                f"{DOCUMENT}:replace_file",
                "files.sync(descriptor)",
                "pass",
            ),
        ),
        ("tests/unit/storage/test_document.py",),
        "property",
    ),
    Mutant(
        "the name of a document is not synced",
        (
            Edit(
                f"{DOCUMENT}:replace_file",
                "files.sync_directory(Path(target).parent)",
                "pass",
            ),
        ),
        ("1", "4", "13"),
        "comes_back_as_itself",
    ),
    Mutant(
        "a document is written in its place",
        (
            Edit(
                f"{DOCUMENT}:replace_file",
                'beside = f"{target}.tmp"',
                "beside = target",
            ),
        ),
        ("tests/unit/storage/test_document.py",),
        "property",
    ),
    Mutant(
        "a slot is not synced",
        (
            Edit(
                "gossipkv.storage.slots:write_slots",
                "files.sync(descriptor)",
                "pass",
            ),
        ),
        ("power_losses",),
        "comes_back_as_itself",
    ),
    Mutant(
        "the slot that is whole is overwritten first",
        (
            Edit(
                "gossipkv.storage.slots:write_slots",
                "for slot in sorted(range(SLOTS), key=whole.__contains__):",
                "for slot in range(SLOTS):",
            ),
        ),
        ("tests/unit/storage/test_slots.py",),
        "property",
    ),
    Mutant(
        "a start does not raise its epoch",
        (
            Edit(
                "gossipkv.node.identity:next_life",
                "return known._replace(epoch=max(known.epoch + 1, least_epoch)), is_new",
                "return known._replace(epoch=known.epoch or least_epoch), is_new",
            ),
        ),
        ("restarts",),
        "comes_back_as_itself",
    ),
    Mutant(
        "a silent node answers a ping",
        (
            Edit(
                f"{GOSSIP}.membership.outbox:Outbox.send",
                "if self.silent:",
                "if self.silent and message[0] != 2:  # ACK",
            ),
        ),
        ("read_only",),
        "the_silent_are_unheard",
    ),
    Mutant(
        "a silent node answers a ping over TCP",
        (
            Edit(
                f"{GOSSIP}.core:Gossip.reply",
                "return None if self._outbox.silent else self._inbox.reply(request, now_ms)",
                "return self._inbox.reply(request, now_ms)",
            ),
        ),
        SILENT,
        "property",
    ),
    Mutant(
        "a silent node announces itself and publishes",
        (
            Edit(
                f"{GOSSIP}.membership.self_identity:SelfIdentity.settled",
                "return not self._storing and self._namesakes.claim is None and not self._outbox.silent",
                "return not self._storing and self._namesakes.claim is None",
            ),
        ),
        ("read_only",),
        "only_real_epochs",
    ),
    Mutant(
        "a silent node probes, and hears no answer",
        (
            Edit(
                f"{GOSSIP}.core:Gossip.on_changed",
                "if before not in REACHABLE and not self._outbox.silent:",
                "if before not in REACHABLE:",
            ),
        ),
        SILENT,
        "property",
    ),
    Mutant(
        "a silent node asks only once",
        (
            Edit(
                f"{GOSSIP}.membership.joining:Joining._answered",
                "if seed.remembered and self._seeds.get(address) is seed and not self._outbox.silent:",
                "if seed.remembered and self._seeds.get(address) is seed:",
            ),
        ),
        SILENT,
        "property",
    ),
    Mutant(
        "a node that speaks again probes nobody",
        (
            Edit(
                f"{GOSSIP}.core:Gossip.speak",
                "self._detector.newcomer(peer, now_ms)",
                "pass",
            ),
        ),
        SILENT,
        "property",
    ),
    Mutant(
        "a silent node reuses its epoch",
        (
            Edit(
                "gossipkv.node.directory:DataDirectory.begin",
                "write_node(self.files, self.path, self._record)",
                "pass",
            ),
        ),
        ("tests/unit/node/test_silent_start.py",),
        "property",
    ),
    Mutant(
        "a silent node keeps what is later, and not its epoch first",
        (
            Edit(
                "gossipkv.node.directory:DataDirectory.keep",
                "if self.silence is not None:",
                "if False:",
            ),
        ),
        ("tests/unit/node/test_silent_start.py",),
        "property",
    ),
    Mutant(
        "a silent node builds and switches",
        (
            Edit(
                "gossipkv.dataset.database:Database._decide",
                "if not self._shared.may_write():",
                "if False:",
            ),
        ),
        ("tests/unit/dataset/test_read_only.py",),
        "property",
    ),
    Mutant(
        "a silent node refreshes",
        (
            Edit(
                "gossipkv.node.methods:Handlers._refresh",
                "if silence is not None:",
                "if False:",
            ),
        ),
        ("tests/unit/node/test_methods.py",),
        "property",
    ),
    Mutant(
        "a silent node claims a place",
        (
            Edit(
                "gossipkv.node.gossip:ShardIdTimer.start",
                "if not self._core.silent:",
                "if True:",
            ),
        ),
        ("tests/unit/node/test_gossip.py",),
        "property",
    ),
)

"""Bugs by which damage is not found, or a wrong value is served (P8)."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Edit, Mutant, planted

MUTANTS: tuple[Mutant, ...] = (
    planted(
        "the salt of a segment is ignored",
        "gossipkv.storage.engine._log:seed_of",
        "return crc32c_of(salted, 8, 0)",
        "return 0",
        "tests/unit/storage/engine/test_store_damage.py",
    ),
    planted(
        "damage is taken for a tail",
        "gossipkv.storage.engine.recovery:_Recovery._judge",
        "if claimed >= least:",
        "if False:",
        "tests/unit/storage/engine/test_store_damage.py",
    ),
    planted(
        "a segment that is missing in the middle is not missed",
        "gossipkv.storage.engine.recovery:_Recovery._keep",
        "self._lose(name.number, error)",
        "pass",
        "tests/unit/storage/engine/test_store_damage.py::test_damage_in_log_that_is_kept_for_readers",
    ),
    planted(
        "checked pages are never forgotten",
        "gossipkv.dataset.scrub.scrub:Scrub._forget_in_slices",
        "version.forget_checks((begin + slice_) % slices, slices)",
        "pass",
        "tests/unit/dataset/scrub/test_scrub.py",
    ),
    planted(
        "the verdict of the child that reads back is ignored",
        "gossipkv.dataset.scrub.scrub:Scrub._read_back_whole",
        "self._on_damage(version, damage)",
        "pass",
        "tests/unit/dataset/scrub/test_scrub.py",
    ),
    planted(
        "a damaged file is passed over",
        "gossipkv.dataset.scrub.read_back:read_back",
        "on_damage(_damage(str(path), error))",
        "pass",
        "tests/unit/dataset/scrub/test_read_back.py",
    ),
    planted(
        "a damaged version is trusted",
        "gossipkv.dataset.lifecycle.copies:Copies.damaged",
        "version.distrust()",
        "pass",
        "tests/unit/dataset/test_database_slow.py",
    ),
    planted(
        "a damaged copy is added to",
        "gossipkv.dataset.lifecycle.copy_states:VersionCopy.lacks",
        "if self.share is None or self.here is None or self.damaged:",
        "if self.share is None or self.here is None:",
        "tests/unit/dataset/lifecycle/test_verdicts.py",
    ),
    planted(
        "a get does not look whether its file is whole",
        "gossipkv.serving.published._table:PublishedTable.end_get",
        "if not is_whole(<SortedFile>lookup.file):",
        "if False:",
        "tests/unit/serving/test_lost_maps.py",
    ),
    planted(
        "a scan does not look whether its files are whole",
        "gossipkv.serving.scan._page:page_run",
        "return result if all_whole(page) else PAGE_DAMAGED",
        "return result",
        "tests/unit/serving/test_lost_maps.py",
    ),
    planted(
        "partitions of another identity are added",
        "gossipkv.dataset.local.store:VersionStore.add_partitions",
        "if built.identity != existing.identity:",
        "if False:",
        "tests/unit/dataset/local/test_partial_versions.py",
        by="assertion of VersionManifest.joined",
    ),
    planted(
        "the manifest is replaced before the partitions are renamed",
        "gossipkv.dataset.local.store:VersionStore.add_partitions",
        "for file in built.files_here:",
        """write_manifest(self.files, target, existing.joined(built))
            for file in built.files_here:""",
        "tests/unit/dataset/local/test_partial_versions.py",
    ),
    planted(
        "nobody hears of damage for which others answer",
        "gossipkv.serving.peer._relay_driver:note_damage",
        "put_bin(damaged, version.data, version.size)",
        "told.end = 0",
        "tests/unit/serving/test_damaged_here.py",
    ),
    planted(
        "a lower key counts as one in order",
        "gossipkv.storage._record_sorter:follows",
        "return compare_keys(at + RECORD_HEADER_SIZE, <Py_ssize_t> load32(at + 4), key, size) <= 0",
        "return True",
        "tests/unit/storage/test_record_sorter.py",
    ),
    planted(
        "a load test counts a wrong value as no failure",
        "gossipkv.loadtest.judgement:_bad",
        "if totals.wrong:",
        "if False:",
        "tests/unit/loadtest/test_judgement.py",
    ),
    planted(
        "a load test forgets which writes were acknowledged",
        "gossipkv.loadtest._writes:Writes.end",
        "state.floor = max(state.floor, asked.base)",
        "pass",
        "tests/unit/loadtest/test_writes.py",
    ),
    planted(
        "a load test takes any value of a table",
        "gossipkv.loadtest._writes:Writes.judge",
        "if self.is_ours:",
        "if False:",
        "tests/unit/loadtest/test_writes.py",
    ),
    planted(
        "a load test lets sessions go back",
        "gossipkv.loadtest._writes:Writes.judge",
        "cdef uint32_t seen_floor = seen.floor if seen != NULL and seen.key == key else 0",
        "cdef uint32_t seen_floor = 0",
        "tests/unit/loadtest/test_writes.py",
    ),
    Mutant(
        "a view is replaced while loops read it",
        (
            Edit("gossipkv.storage.engine._gate:ReadGate.set_views", "self.begin_change()", "pass"),
            Edit("gossipkv.storage.engine._gate:ReadGate.set_views", "end_change(self)", "pass"),
        ),
        ("tests/unit/storage/engine/test_gate_slow.py",),
        by="property",
    ),
    Mutant(
        "records are put while loops read their neighbours",
        (
            Edit("gossipkv.storage.engine._gate:ReadGate.apply_slices", "self.begin_change()", "pass"),
            Edit("gossipkv.storage.engine._gate:ReadGate.apply_slices", "end_change(self)", "pass"),
        ),
        ("tests/unit/storage/engine/test_gate_slow.py",),
        by="property",
    ),
    planted(
        "the answer of a hedge is taken for that of the oldest request",
        "gossipkv.client.dispatcher:Dispatcher._on_twin",
        "original.settle(twin.result)",
        "(original if link is None else link.session.outstanding()[0]).settle(twin.result)",
        "tests/unit/client/test_dispatcher.py",
    ),
    planted(
        "the late answer of a hedge is taken for that of another request",
        "gossipkv.client.dispatcher:Dispatcher._on_twin",
        "if original.is_done or twin.error is not None:",
        "if twin.error is not None or (original.is_done and (original := next((one for link in self._links.values()"
        " for one in link.session.outstanding() if not one.is_inner), None)) is None):",
        "tests/unit/client/test_dispatcher.py",
    ),
    planted(
        "the error of a hedge is taken for an answer",
        "gossipkv.client.dispatcher:Dispatcher._on_twin",
        "if original.is_done or twin.error is not None:",
        "if original.is_done:",
        "tests/unit/client/test_dispatcher.py",
    ),
)

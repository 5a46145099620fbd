"""Bugs planted in the store under the tables: in its log, its recovery, its merges and switches, and its backup."""

from __future__ import annotations

from tests.nightly.mutants.mutant import Edit, Mutant, planted

ENGINE = "gossipkv.storage.engine"
TESTS = "tests/unit/storage/engine"
STORE = f"{TESTS}/test_store.py"
CRASHES = f"{TESTS}/test_store_crashes.py"
DAMAGE = f"{TESTS}/test_store_damage.py"
KEPT = f"{DAMAGE}::test_damage_in_log_that_is_kept_for_readers"
FAULTS = f"{TESTS}/test_store_faults.py"
FULL = f"{TESTS}/test_full_disk.py"
BACKUP = f"{TESTS}/test_store_backup.py"
EXTENTS = f"{TESTS}/test_extents.py"

COMMIT = "tests.world.blocking_store:Store.commit"
CONTINUE = f"{ENGINE}.opening:_continue"
ENDS = "ends = (*manifest.lives, LifeEnd(manifest.life, cut.name.number, cut.end, found.position, name))"
SKIP = """whole = self._files.pread(self._descriptor, self.header.size_bytes, 0)
                places = range(reader.offset + 8, len(whole) - 31, 8)
                found = [at for at in places if FrameReader(whole, self.header.salt, at).next() is not None]
                if not found:
                    break
                reader = FrameReader(whole, self.header.salt, found[0])"""
SOURCES = "sources: list[Source] = [self._source(run) for run in reversed(order.runs[:-1])]"
INPUTS = "log = tuple(LogInput(*segment.name, segment.end) for segment in self.closed)"


MUTANTS_OF_THE_STORE = (
    planted(
        "a batch is applied before it is synced",
        f"{ENGINE}.engine:Engine.append",
        "return self._writer.plan_plain(batch) or self._append(batch)",
        "self._apply(batch)\n        return self._writer.plan_plain(batch) or self._append(batch)",
        STORE,
    ),
    Mutant(
        "a batch is acknowledged by the sync that ran before it",
        (
            Edit(
                COMMIT,
                "self.files.pwrite(group.descriptor, group.data, group.offset)",
                "self.files.sync(group.descriptor)  # Of what was written before.",
            ),
            Edit(
                COMMIT,
                "self.files.sync(group.descriptor)",
                "self.files.pwrite(group.descriptor, group.data, group.offset)",
            ),
        ),
        (CRASHES,),
        "property",
    ),
    Mutant(
        "a sync is tried again after a failure",
        (Edit(COMMIT, "self.engine.failed(error)", "self.files.sync(group.descriptor)"), Edit(COMMIT, "break", "pass")),
        (FAULTS,),
        "property",
    ),
    planted("the salt is ignored", f"{ENGINE}._log:seed_of", "return crc32c_of(salted, 8, 0)", "return 0", DAMAGE),
    planted(
        "the next segment is not named",
        f"{ENGINE}.recovery:_Recovery.run",
        "name = self._following(reader, walked[-1])",
        "name = None",
        CRASHES,
    ),
    planted("no mark is written", f"{ENGINE}.engine:Engine.mark", "self._writer.mark()", "pass", DAMAGE),
    planted(
        "a recovered tail is shown before it is synced",
        f"{ENGINE}.segments:make_segment",
        "files.sync(descriptor)",
        "fill or files.sync(descriptor)",
        CRASHES,
    ),
    Mutant(
        "a cut segment is continued",
        (
            Edit(CONTINUE, "name = SegmentName(found.next_number, random.getrandbits(64))", "name = found.cut.name"),
            Edit(CONTINUE, "active = _rewrite(files, directory, found, header)", "active = found.cut"),
            Edit(CONTINUE, ENDS, "ends = manifest.lives"),
            Edit(CONTINUE, "next_number=name.number + 1,", "next_number=found.next_number,"),
            Edit(CONTINUE, "_remove(files, directory, found.outlived)", "pass"),
        ),
        (CRASHES,),
        "property",
    ),
    planted("where a life ended is not recorded", CONTINUE, ENDS, "ends = manifest.lives", CRASHES),
    planted("a hole is skipped", f"{ENGINE}.segments:SegmentReader.frames", "break", SKIP, CRASHES),
    planted(
        "damage is taken for a tail", f"{ENGINE}.recovery:_Recovery._judge", "if claimed >= least:", "if False:", DAMAGE
    ),
    planted(
        "a tail is taken for damage",
        f"{ENGINE}.recovery:_Recovery._judge",
        "if claimed >= least:",
        "if claimed >= least or reader.is_torn:",
        DAMAGE,
    ),
    planted(
        "the directory of the log is not synced",
        f"{ENGINE}.segments:make_segment",
        "files.sync_directory(directory / LOG)",
        "pass",
        CRASHES,
    ),
    planted(
        "the manifest comes before the names of its files",
        f"{ENGINE}.merge:_Merging._end",
        "self._files.sync_directory(self._directory / RUNS)",
        "pass",
        CRASHES,
    ),
    planted(
        "a tombstone is dropped in a young run",
        f"{ENGINE}.merge:_Merging.begin",
        "self._merge = StoreMerge(sources, self._spaces, order.drops_tombstones, order.purges)",
        "self._merge = StoreMerge(sources, self._spaces, True, order.purges)",
        CRASHES,
    ),
    Mutant(
        "what is merged does not neighbour in age",
        (
            Edit(
                f"{ENGINE}.upkeep:Upkeep.begin_compaction",
                "inputs = tuple(run.files for run in runs[first : last + 1])",
                "inputs = tuple(run.files for run in (*runs[first : last : 2], runs[last]))",
            ),
            Edit(
                f"{ENGINE}.upkeep:Upkeep._compacted",
                "runs[last - chosen.count : last + 1] = [runs[last]] if runs[last].files or not chosen.below else []",
                "del runs[last - chosen.count : last : 2]",
            ),
        ),
        (CRASHES,),
        "property",
    ),
    planted(
        "the older run wins",
        f"{ENGINE}.merge:_Merging.begin",
        SOURCES,
        SOURCES.replace("reversed(order.runs[:-1])", "order.runs[:-1]"),
        CRASHES,
    ),
    planted(
        "what a batch does to spaces is judged without its order",
        f"{ENGINE}.engine:Engine._check_spaces",
        "if space not in self._reserved or space in made:",
        "if space not in self._reserved:",
        f"{TESTS}/test_engine.py",
    ),
    planted(
        "reads end when a sync fails",
        f"{ENGINE}.reading:Reading._check",
        "self.engine.check_readable()",
        "self.engine.check_open()",
        FAULTS,
    ),
    planted(
        "a store that failed is not opened again",
        "gossipkv.table.tables:Tables._has_failed",
        "return not self._end.is_set()",
        "return False",
        "tests/unit/table/test_tables.py",
    ),
    planted(
        "a store that fails is opened again at once",
        "gossipkv.table.tables:Tables._stay_closed",
        "self._failures += 1",
        "pass",
        "tests/unit/table/test_tables.py",
    ),
    planted(
        "a node decides on with the store that has failed",
        "gossipkv.table.deciding:Deciding._begin",
        "if self.metadata is not None and self.metadata.space.closed is None:",
        "if self.metadata is not None:",
        "tests/unit/table/test_methods.py",
    ),
    planted(
        "deletes wait for the same room as values",
        f"{ENGINE}.engine:Engine._make_room",
        "refusal = None if relieves else self._look().refusal",
        "refusal = self._look().refusal",
        FULL,
    ),
    planted(
        "the reserve is kept from what gives room back",
        f"{ENGINE}.engine:Engine._next_reserve",
        "if self._is_short(state):",
        "if False:",
        FULL,
    ),
    planted(
        "a merge that gives room back needs all of it first",
        f"{ENGINE}.policy:compaction",
        "needed = compaction_bytes(state, found, limits) + (0 if relief else limits.margin_bytes)",
        "needed = compaction_bytes(state, found, limits) + limits.margin_bytes",
        FULL,
    ),
    planted(
        "deletes on a full disk wait in the memtable",
        f"{ENGINE}.engine:Engine.relieve",
        "if not policy.is_scarce(state, self._limits):",
        "if True:",
        FULL,
    ),
    planted(
        "a purge takes what is newer with it",
        f"{ENGINE}.upkeep:Upkeep.begin_compaction",
        "purges=not chosen.count,",
        "purges=False,",
        f"{TESTS}/test_upkeep.py",
    ),
    planted(
        "a purge goes through the oldest run alone",
        f"{ENGINE}.policy:_relief",
        "return Compaction(len(state.young), 0)",
        "return Compaction(0, 0)",
        f"{TESTS}/test_policy.py",
    ),
    planted(
        "what a merge reads is no progress",
        f"{ENGINE}.merge:_Merging._source",
        "return FilesSource(self._open, paths, start, self._worked)",
        "return FilesSource(self._open, paths, start, lambda _: None)",
        f"{TESTS}/test_merge.py",
    ),
    planted(
        "the name of a directory that is there already is not synced",
        "gossipkv.storage.directories:make_directory",
        "files.sync_directory(path.parent)",
        "is_there or files.sync_directory(path.parent)",
        "tests/unit/storage/test_directories.py",
    ),
    planted(
        "a dropped space is given out again",
        f"{ENGINE}.upkeep:Upkeep.next_switch",
        "next_space=now.next_space,",
        "next_space=max(now.spaces, default=0) + 1,",
        STORE,
    ),
    planted(
        "a segment is used again before its run is in place",
        f"{ENGINE}.upkeep:Upkeep.begin_flush",
        INPUTS,
        f"{INPUTS}\n        self._free += [segment.name.number for segment in self.closed]",
        CRASHES,
    ),
    planted(
        "memtables are read in the wrong order",
        f"{ENGINE}.engine:Engine._new_view",
        "memtables = [memtable] if self._frozen is None else [memtable, self._frozen]",
        "memtables = [memtable] if self._frozen is None else [self._frozen, memtable]",
        CRASHES,
    ),
    planted(
        "runs are read in the wrong order",
        f"{ENGINE}.engine:Engine._new_view",
        "runs = [*self.manifest.young, self.manifest.oldest]",
        "runs = [self.manifest.oldest, *self.manifest.young]",
        CRASHES,
    ),
    planted(
        "a store that is put back keeps its id",
        f"{ENGINE}.backup:restore",
        "store = random.getrandbits(64) or 1",
        "store = old.store",
        BACKUP,
    ),
    planted(
        "a follower is sent back to where its segment begins",
        f"{ENGINE}.log_reader:LogReader.next",
        "place = cursor.place or self._before(cursor.position, segments)",
        "place = self._before(cursor.position, segments)",
        f"{TESTS}/test_segments.py",
    ),
    planted(
        "nobody begins at a mark",
        f"{ENGINE}.log_reader:LogReader._before",
        "return max(start, self._marks[mark - 1]) if mark else start",
        "return start",
        f"{TESTS}/test_segments.py",
    ),
    planted(
        "all of the log is read on the loop",
        f"{ENGINE}.log_reader:Slice.is_short",
        "return 0 < self.segment.end <= self.place.offset + SHORT_BYTES",
        "return True",
        f"{TESTS}/test_following.py",
    ),
    planted(
        "a log that was let go of is damage",
        f"{ENGINE}.reading:Reading._took",
        "self._check_floor(cursor)",
        "pass",
        f"{TESTS}/test_following.py",
    ),
    planted(
        "damage in log that only its readers need closes the store",
        f"{ENGINE}.segments:is_damage",
        "return isinstance(error, Corrupt) or error.errno == errno.EIO",
        "return False",
        f"{DAMAGE}::test_files_that_are_missing_or_empty",
    ),
    planted(
        "damage that a follower meets stays in the log",
        f"{ENGINE}.engine:Engine.lose_log",
        "if self.upkeep.lose_log(number):",
        "if False:",
        KEPT,
    ),
    planted(
        "log that was let go of for damage stays on the disk",
        f"{ENGINE}.upkeep:Upkeep._keep_log",
        "self.abandon(lost)",
        "pass",
        KEPT,
    ),
    planted(
        "a segment that is missing in the middle is not missed",
        f"{ENGINE}.recovery:_Recovery._kept_names",
        "if manifest.kept:",
        "if False:",
        KEPT,
    ),
    planted(
        "who follows the log reads over damage",
        f"{ENGINE}.recovery:_Recovery._lose",
        "self._kept.clear()",
        "pass",
        KEPT,
    ),
    planted(
        "positions begin anew when log that only readers need is lost",
        f"{ENGINE}.recovery:_Recovery._before",
        "if self._damage is not None and not max(self._least, self._lived):",
        "if False:",
        f"{TESTS}/test_recovery.py",
    ),
    planted(
        "a part of a space is measured to the space's end",
        f"{ENGINE}._view:View.extent_within",
        "cdef bytes low = internal_key(space, start), high = end_of(space, end)",
        "cdef bytes low = internal_key(space, start), high = end_of(space, None)",
        EXTENTS,
    ),
    planted(
        "a file that begins before a part counts from its beginning",
        f"{ENGINE}._view:View.add_file",
        "if start != NULL and seek(file, start.data, start.size, &at) < 0:",
        "if False:",
        EXTENTS,
    ),
    planted(
        "nothing lies before a middle key",
        f"{ENGINE}._view:View.middle_key",
        "if self.first_key(low, high) == middle:",
        "if False:",
        EXTENTS,
    ),
    planted(
        "what lies in a leaf that is cut is no record",
        f"{ENGINE}._memtable:Memtable.extent_between",
        "found.records += 1",
        "pass",
        EXTENTS,
    ),
    planted("a backup is not synced", f"{ENGINE}.backup:_copy", "files.sync(writing)", "pass", BACKUP),
)

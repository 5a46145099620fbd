"""The published table, and the reads that are answered from it without Python.

The table is immutable but for its counters. A change makes a new table, which replaces the old one between two steps,
so a request sees only one of the tables. The table pins its files, so none is unmapped while in use.

A plain read is answered here: parameters as in `docs/users/wire.md`, database and version known, partition local,
record and file whole. Other nodes may have missing or damaged data (`forward/get.pyx`). Other reads are handed off
unchanged, also one that the user's rights forbid: only Python (`gossipkv.serving.reads`, `gossipkv.node.access`) knows
the errors. So only complete answers stay in `out`. `read_as` sets the user's rights before a plan is made.

`min_version` chooses the active version if it is new enough, else the oldest held version that is, so a session
advances no further than it must.
"""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from gossipkv.keyspace._keyspace cimport partition_of
from gossipkv.storage._storage cimport Slice, SortedFile, is_whole
from gossipkv.wire._buffer cimport Buffer, buffer_reserve
from gossipkv.wire._wire cimport HEAD_BYTES, Blob, Cursor, put, put_answer, put_bin, put_bytes, take_array, take_blob

from msgpack import packb

cdef enum:
    # Names are directory names; a longer one from a client is not worth its hash.
    LONGEST_NAME = 255
    # A record's first cache lines come with the record; longer values (on average) are prefetched on their own.
    LONG_VALUE_BYTES = 128

cdef const char* VALUE_TOO_LONG = b"the value is longer than the node may send"
cdef const char* VALUE_OVER_FRAME = b"the value does not fit into an answer"
cdef const char* VALUE_OVER_ASKER = (
    b"the value is on another node and longer than this node can receive; give all nodes the same max_frame"
)


cdef inline size_t hash_name(const Blob* name) noexcept nogil:
    """Hash a name by FNV-1a: names are short, and chosen by the source's owner rather than by clients."""
    cdef uint32_t state = 2166136261U
    cdef Py_ssize_t i
    for i in range(name.size):
        state = (state ^ name.data[i]) * 16777619U
    return state


@cython.final
cdef class PublishedTable:
    """The table of served data: `(database, active version or None, versions)` for each database.

    A version is `(version, function code, files, identity, standing)`. `files[p]` holds partition p, or None if the
    partition is not on this node; all may be None. `identity` names the version between nodes in 16 bytes; with None no
    other node is asked for it. `standing` is its audience: 0 for forwarding nodes, which may read any version; 1 for
    all clients; 2 for clients that ask for one at least as new. An optional sixth item is the HTTP line with the time
    of modification. Only the serving loop's thread reads the files, which are pinned until `release`. `tables` are the
    `CalmTable`s whose calm replicas are read, all behind one gate; their rows follow those of databases.
    """

    def __cinit__(self, databases, tables=()):
        cdef CalmTable table
        self.owned = []
        self.gone = {}
        self.database_count = 0
        self.pinned = True
        entries = [(*database, None) for database in databases] + [(table.name, None, (), table) for table in tables]
        cdef Py_ssize_t slots = 1
        while slots < 2 * len(entries) + 1:
            slots *= 2
        self.slot_mask = slots - 1
        self.slots = <Py_ssize_t*>calloc(slots, sizeof(Py_ssize_t))
        self.databases = <DatabaseRow*>calloc(len(entries) + 1, sizeof(DatabaseRow))
        if self.slots == NULL or self.databases == NULL:
            raise MemoryError
        self.let_read([])
        for name, active, versions, table in entries:
            self.add_database(name, active, versions, table)

    def __dealloc__(self):
        cdef Py_ssize_t d
        cdef Py_ssize_t v
        for d in range(self.database_count):
            for v in range(self.databases[d].version_count):
                free(self.databases[d].versions[v].files)
            free(self.databases[d].versions)
        free(self.databases)
        free(self.slots)
        free(self.users)

    cdef int hold(self, bytes text, Blob* blob) except -1:
        """Keep `text` alive as long as the table, and point `blob` at it."""
        self.owned.append(text)
        blob.data = <const uint8_t*><const char*>text
        blob.size = len(text)
        return 0

    cdef int add_database(self, str name, object active, object versions, CalmTable table) except -1:
        cdef DatabaseRow* database = &self.databases[self.database_count]
        cdef Py_ssize_t slot
        self.hold(name.encode(), &database.name)
        if self.find_database(&database.name) != NULL:
            raise ValueError(f"the database {name!r} is published twice")
        ordered = sorted(versions, key=lambda version: version[0].encode())
        database.versions = <VersionRow*>calloc(len(ordered) + 1, sizeof(VersionRow))
        if database.versions == NULL:
            raise MemoryError
        self.database_count += 1
        if table is not None:
            self.gate = table.gate
            self.owned.append(table)
            database.table = <PyObject*>table
        for version, function, files, identity, standing, *modified in ordered:
            database.versions[database.version_count].database = database
            self.add_version(database, version, function, list(files), identity, standing, b"".join(modified))
            if version == active and standing == 1:
                database.active = &database.versions[database.version_count - 1]
        if active is not None and database.active == NULL:
            raise ValueError(f"active version {active!r} of {name!r} is not among the versions that clients may read")
        slot = hash_name(&database.name) & self.slot_mask
        while self.slots[slot] != 0:
            slot = (slot + 1) & self.slot_mask
        self.slots[slot] = self.database_count
        return 0

    cdef int add_version(
        self, DatabaseRow* database, str name, int function, list files, bytes identity, int standing, bytes modified
    ) except -1:
        cdef VersionRow* version = &database.versions[database.version_count]
        cdef SortedFile file
        cdef uint64_t records = 0
        cdef uint64_t value_bytes = 0
        cdef Py_ssize_t i
        if not files:
            raise ValueError(f"version {name!r} has no partitions")
        if identity is not None and len(identity) != IDENTITY_BYTES:
            raise ValueError(f"the identity of version {name!r} has {len(identity)} bytes, not {IDENTITY_BYTES}")
        self.hold(name.encode(), &version.name)
        self.hold(packb(name), &version.packed_name)
        self.hold(modified, &version.modified)
        version.function = function
        version.passed = standing == 1
        version.for_sessions = standing == 2
        if identity is not None:
            version.shared = True
            memcpy(version.identity, <const char*>identity, IDENTITY_BYTES)
        version.files = <PyObject**>calloc(len(files), sizeof(PyObject*))
        if version.files == NULL:
            raise MemoryError
        database.version_count += 1
        version.partitions = len(files)
        version.complete = None not in files
        for i in range(version.partitions):
            file = files[i]
            if file is not None:
                file.pin()
                self.owned.append(file)
                version.files[i] = <PyObject*>file
                records += file.record_count
                value_bytes += file.value_bytes
        version.mean_value = <Py_ssize_t>(value_bytes // max(records, <uint64_t>1))
        version.long_values = value_bytes > LONG_VALUE_BYTES * records
        return 0

    def let_read(self, bitmaps):
        """Set the readable databases by user: bit d of a bitmap is the d-th database, the lowest first; None for all.

        An unlisted user may read nothing. Without any bitmaps, all users may read all databases.
        """
        cdef list kept = [bytes(bitmap) if bitmap is not None else None for bitmap in bitmaps]
        cdef Py_ssize_t size = self.database_count // 8 + 1
        cdef const uint8_t** users = <const uint8_t**>calloc(len(kept) + 1, sizeof(uint8_t*))
        cdef Py_ssize_t i
        if users == NULL:
            raise MemoryError
        if kept:
            kept.append(bytes(size))
        for i in range(len(kept)):
            if kept[i] is not None:
                if len(kept[i]) < size:
                    free(users)
                    raise ValueError(f"{len(kept[i])} bytes are too few bits for {self.database_count} databases")
                users[i] = <const uint8_t*><const char*>kept[i]
        free(self.users)
        self.users = users
        self.user_count = <uint32_t>max(len(kept) - 1, 0)
        self.bitmaps = kept
        read_as(self, self.user_count)

    def release(self):
        """Unpin the files: this table will not be read again."""
        if self.pinned:
            self.pinned = False
            for held in self.owned:
                if isinstance(held, SortedFile):
                    held.unpin()

    def count(self, str database, str version, bint by_name):
        """Count a request that Python answered, as for requests answered here."""
        cdef VersionRow* found = self.find_version(database.encode(), version.encode())
        if found != NULL:
            count_request(found, by_name)

    def requests(self):
        """Return requests so far: `{(database, version): (in all, by the version's name, hits, misses)}`."""
        result = {}
        cdef DatabaseRow* database
        cdef VersionRow* version
        cdef Py_ssize_t d
        cdef Py_ssize_t v
        for d in range(self.database_count):
            database = &self.databases[d]
            for v in range(database.version_count):
                version = &database.versions[v]
                name = (text_of(&database.name), text_of(&version.name))
                result[name] = (
                    version.counts.requests, version.requests_by_name, version.counts.hits, version.counts.misses
                )
        return result

    def inherit(self, PublishedTable older not None):
        """Continue the counts of `older`; counts of a version that is not held here are kept."""
        cdef DatabaseRow* database
        cdef DatabaseRow* heir
        cdef VersionRow* version
        cdef VersionRow* found
        cdef Py_ssize_t d
        cdef Py_ssize_t v
        self.gone = {name: dict(counts) for name, counts in older.gone.items()}
        for d in range(older.database_count):
            database = &older.databases[d]
            if database.table != NULL:
                continue
            heir = self.find_database(&database.name)
            if heir != NULL and heir.table == NULL:
                heir.counts = database.counts
            else:
                self.keep(&database.name, &database.counts)
            for v in range(database.version_count):
                version = &database.versions[v]
                found = version_named(heir, &version.name) if heir != NULL else NULL
                if found != NULL:
                    found.counts = version.counts
                    found.requests_by_name = version.requests_by_name
                else:
                    self.keep(&database.name, &version.counts)

    cdef int keep(self, const Blob* database, const ReadCounts* counts) except -1:
        """Add the counts of a vanished version or database to the kept counts of its database."""
        cdef str name = text_of(database)
        self.gone[name] = added(self.gone.get(name, NO_COUNTS), counts)
        return 0

    def reads(self):
        """Return the counts since the start, including versions no longer held: `{database: {name: count}}`.

        `requests` found a version, and `forwarded` of them went to other nodes. `hits` and `misses` count keys,
        `value_bytes` the hits' bytes, and `errors` the loop's error answers.
        """
        cdef DatabaseRow* database
        cdef dict totals = dict(self.gone)
        cdef Py_ssize_t d
        cdef Py_ssize_t v
        for d in range(self.database_count):
            database = &self.databases[d]
            if database.table != NULL:
                continue
            counts = added(totals.get(text_of(&database.name), NO_COUNTS), &database.counts)
            for v in range(database.version_count):
                counts = added(counts, &database.versions[v].counts)
            totals[text_of(&database.name)] = counts
        return totals

    def requests_of(self, str database, str version):
        """Return requests so far that this version answered, by name or not; 0 if it is not held."""
        cdef VersionRow* found = self.find_version(database.encode(), version.encode())
        return found.counts.requests if found != NULL else 0

    cdef VersionRow* find_version(self, bytes database, bytes version) noexcept:
        cdef Blob name = Blob(<const uint8_t*><const char*>database, len(database))
        cdef Blob wanted = Blob(<const uint8_t*><const char*>version, len(version))
        cdef DatabaseRow* found = self.find_database(&name)
        return version_named(found, &wanted) if found != NULL else NULL

    cdef DatabaseRow* find_database(self, const Blob* name) noexcept nogil:
        cdef size_t slot
        cdef DatabaseRow* database
        if name.size > LONGEST_NAME:
            return NULL
        slot = hash_name(name) & <size_t>self.slot_mask
        while self.slots[slot] != 0:
            database = &self.databases[self.slots[slot] - 1]
            if compare(&database.name, name) == 0:
                return database
            slot = (slot + 1) & <size_t>self.slot_mask
        return NULL

    cdef VersionRow* heir_of(self, const VersionRow* version) noexcept nogil:
        """Return the same version in this table, for counting; NULL if it is no longer held."""
        cdef DatabaseRow* database = self.find_database(&version.database.name)
        return version_named(database, &version.name) if database != NULL else NULL

    cdef VersionRow* plan(self, Cursor* params, Blob* key, ReadOptions* options, bint many) noexcept nogil:
        """Parse `database, key or [keys], {options}` and choose the version; the cursor then stands at the keys."""
        cdef Py_ssize_t count = take_array(params)
        cdef DatabaseRow* database
        cdef Cursor keys
        cdef Blob name
        if not 2 <= count <= 3 or not take_blob(params, &name):
            return NULL
        database = self.find_database(&name)
        if database == NULL or not may_be_read(self, database):
            return NULL
        keys = params[0]
        if not (skip_blobs(params) if many else take_blob(params, key)):
            return NULL
        if not take_options(params, count, many, options):
            return NULL
        params[0] = keys
        return choose_version(database, options)

    cdef int begin_get(self, Cursor params, const ReadLimits* limits, Lookup* lookup) noexcept nogil:
        """Parse the parameters of a plain `get` and find its partition.

        Return `ANSWERED` if the get can be answered here (its bucket is being prefetched), `ELSEWHERE` if other nodes
        have its partition, else `HAND_OFF`.
        """
        cdef ReadOptions options
        cdef VersionRow* version = self.plan(&params, &lookup.key, &options, False)
        if version == NULL or lookup.key.size > limits.max_key:
            return HAND_OFF
        lookup.partition = partition_of(version.function, lookup.key.data, lookup.key.size, version.partitions)
        if lookup.partition < 0:
            return HAND_OFF
        lookup.version = version
        lookup.max_frame = answer_limit(limits, &options)
        lookup.by_name = options.has_version
        lookup.explain = options.explain
        lookup.file = version.files[lookup.partition]
        if lookup.file == NULL:
            return ELSEWHERE if may_go_elsewhere(version, &options) else HAND_OFF
        lookup.hash = (<SortedFile>lookup.file).prefetch_bucket(lookup.key.data, lookup.key.size)
        return ANSWERED

    cdef void fetch_record(self, Lookup* lookup) noexcept nogil:
        """Prefetch the record, a while after `begin_get`."""
        lookup.place = (<SortedFile>lookup.file).prefetch_record(lookup.hash)

    cdef void fetch_value(self, Lookup* lookup) noexcept nogil:
        """Prefetch a long value, a while after `fetch_record`."""
        if lookup.version.long_values:
            (<SortedFile>lookup.file).prefetch_value(lookup.place)

    cdef int end_get(
        self, Lookup* lookup, uint32_t msgid, const ReadLimits* limits, const Blob* node, bint waits, Buffer* out
    ) noexcept nogil:
        """Answer a `get` with `[value or nil, version]`, and this node's name if asked to explain. Return an `Outcome`.

        With `waits` the lookup waits for the disk; otherwise the outcome may be `COLD`, and the file knows which page
        to read.
        """
        cdef VersionRow* version = lookup.version
        cdef Slice value
        cdef Py_ssize_t before = buffer_offset(out)
        cdef Py_ssize_t size
        cdef int found
        value.size = 0
        ask_first(lookup.file, waits)
        found = (<SortedFile>lookup.file).find_at(
            lookup.key.data, lookup.key.size, lookup.hash, lookup.place, &value
        )
        ask_first(lookup.file, True)
        if found < 0:
            return why_not(lookup.file)
        size = value.size + version.packed_name.size + 3 * HEAD_BYTES
        if lookup.explain:
            size += explanation_bytes(node)
        if value.size > limits.max_value:
            count_refused(version, lookup.by_name)
            return refuse_too_large(out, msgid, VALUE_TOO_LONG, limits.max_value, value.size)
        if size > lookup.max_frame:
            count_refused(version, lookup.by_name)
            return refuse_too_large(
                out, msgid, VALUE_OVER_FRAME if lookup.max_frame == limits.max_frame else VALUE_OVER_ASKER,
                lookup.max_frame, size
            )
        if buffer_reserve(out, size) < 0:
            return OUT_OF_MEMORY
        put_answer(out, msgid)
        put(out, 0x93 if lookup.explain else 0x92)
        if found:
            put_bin(out, value.data, value.size)
        else:
            put(out, 0xC0)
        put_bytes(out, version.packed_name.data, version.packed_name.size)
        if lookup.explain:
            put_explanation(out, node, 0)
        if not is_whole(<SortedFile>lookup.file):
            out.end = out.start + before
            return DAMAGED
        count_request(version, lookup.by_name)
        if found:
            version.counts.hits += 1
            version.counts.value_bytes += <uint64_t>value.size
        else:
            version.counts.misses += 1
        return ANSWERED


cdef int refuse_too_large(
    Buffer* out, uint32_t msgid, const char* message, Py_ssize_t limit, Py_ssize_t size
) noexcept nogil:
    if write_error(out, msgid, b"TOO_LARGE", message, limit, size) < 0:
        return OUT_OF_MEMORY
    return REFUSED_SIZE


cdef inline Py_ssize_t buffer_offset(const Buffer* out) noexcept nogil:
    """Return the size of `out`: a mark that growing does not move."""
    return out.end - out.start


cdef bint skip_blobs(Cursor* params) noexcept nogil:
    """Skip an array of keys. Return False if it holds anything else."""
    cdef Py_ssize_t count = take_array(params)
    cdef Blob key
    if count < 0:
        return False
    while count > 0:
        if not take_blob(params, &key):
            return False
        count -= 1
    return True


cdef str text_of(const Blob* blob):
    return (<const char*>blob.data)[:blob.size].decode()


cdef dict NO_COUNTS = dict.fromkeys(("requests", "forwarded", "hits", "misses", "value_bytes", "errors"), 0)


cdef dict added(dict counts, const ReadCounts* more):
    """Add two counts; a read that was planned again and counted twice counts once."""
    return {
        "requests": counts["requests"] + more.requests - more.asked_again,
        "forwarded": counts["forwarded"] + more.forwarded,
        "hits": counts["hits"] + more.hits,
        "misses": counts["misses"] + more.misses,
        "value_bytes": counts["value_bytes"] + more.value_bytes,
        "errors": counts["errors"] + more.errors,
    }

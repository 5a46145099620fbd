"""The common part of all dialects; `dialect.pxd` has the rules."""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy

from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport HEAD_BYTES, Blob, Cursor, take_bin, take_nil

KIND_NAMES = ("get", "get_many", "scan", "put", "delete", "put_many", "insert", "read_modify_write")


cdef void skip(Cursor* cursor) noexcept nogil:
    """Skip the value at the cursor, which the scanner has checked."""
    cdef Py_ssize_t size
    scan_message(cursor.at, cursor.end - cursor.at, &size)
    cursor.at += size


cdef class Dialect:
    """Writes requests for records, and judges the answers."""

    def __cinit__(self):
        self.pieces = []
        self.stretch = 1

    cdef int keep(self, records) except -1:
        """Ask for these `Records`, or pairs of key and value; a key with the value None must be absent."""
        self.truth = as_records(records)
        self.records = self.truth.tables[0]
        self.count = self.truth.count
        self.longest_key = self.truth.longest_key
        return 0

    cdef Blob own(self, bytes piece):
        self.pieces.append(piece)
        return blob_of(piece)

    cdef Py_ssize_t room(self, uint32_t batch) except -1:
        cdef Py_ssize_t of_key = 2 * (NUMBER_BYTES + HEAD_BYTES) + self.stretch * self.longest_key
        cdef Py_ssize_t head = sum(map(len, self.pieces)) + 256
        if self.writes is not None:
            head += TOKEN_BYTES
            of_key += self.writes.longest + 8
        return head + batch * of_key

    cdef void write(self, Buffer* out, const Slot* slot, const Asked* asked) noexcept nogil:
        pass

    cdef const Asked* expect(self, const Window* window, uint32_t at, Reply* reply) noexcept nogil:
        reply_begin(reply, at)
        reply.keys = window.slots[at].count
        if self.writes is not None:
            self.writes.session = window.slots[at].session
        return window_asked(window, at)

    cdef const Record* answered_from(self, const Blob* version, Reply* reply) noexcept nogil:
        cdef const Record* table
        if self.writes is not None:
            self.writes.saw(version)
        elif version.size > 0:
            reply.version = version.data
            reply.version_size = version.size
        table = self.truth.table_of(reply.version, reply.version_size)
        if table != NULL:
            self.records = table
        return table

    cdef void judge_value(
        self, const Record* table, uint32_t key, const uint8_t* data, Py_ssize_t size, Reply* reply
    ) noexcept nogil:
        if self.writes is None:
            reply_value(reply, table, key, data, size)
        else:
            self.writes.judge(key, data, size, reply)

    cdef void judge_values(
        self, Cursor* cursor, Py_ssize_t found, const Record* table, const Asked* asked, Reply* reply
    ) noexcept nogil:
        cdef Blob value
        cdef uint32_t i
        for i in range(reply.keys):
            if i >= found:
                reply_wrong(reply, asked[i].key, NULL, 0)
            elif take_bin(cursor, &value):
                self.judge_value(table, asked[i].key, value.data, value.size, reply)
            elif take_nil(cursor):
                self.judge_value(table, asked[i].key, NULL, 0, reply)
            else:
                reply_wrong(reply, asked[i].key, NULL, 0)
                skip(cursor)
        reply_too_many(reply, found, reply.keys)

    cdef int take(self, const Window* window, const uint8_t* data, Py_ssize_t size, Reply* reply) noexcept nogil:
        return GARBAGE

    cdef void scan_begin(self, ScanCheck* scan, const Record* table, uint32_t start) noexcept nogil:
        scan.table = table
        scan.start = start
        scan.place = self.truth.places[start] if self.truth.ordered != NULL else 0
        scan.last = Blob(self.records[start].key, self.records[start].key_size)
        scan.is_first = True

    cdef void scan_record(self, ScanCheck* scan, const Blob* key, const Blob* value, Reply* reply) noexcept nogil:
        cdef int before = order(scan.last.data, scan.last.size, key.data, key.size)
        cdef const Record* record
        if before > 0 or (before == 0 and not scan.is_first):
            reply_wrong(reply, ABSENT, key.data, key.size)
            return
        scan.is_first = False
        scan.last = key[0]
        if self.writes is not None:
            self.judge_written(key, value, reply)
            return
        if scan.table == NULL:
            reply.untold += 1
        if scan.table == NULL or self.truth.ordered == NULL:
            reply.unchecked += 1
            return
        while scan.place < self.truth.present:
            record = scan.table + self.truth.ordered[scan.place]
            before = order(record.key, record.key_size, key.data, key.size)
            if before > 0:
                break
            scan.place += 1
            if before == 0:
                reply_value(reply, scan.table, self.truth.ordered[scan.place - 1], value.data, value.size)
                return
            if not may_be_absent(record):
                reply_wrong(reply, self.truth.ordered[scan.place - 1], NULL, 0)  # The record was left out.
        if self.truth.is_whole(scan.table):
            reply_wrong(reply, ABSENT, key.data, key.size)
        else:
            reply.unchecked += 1

    cdef void judge_written(self, const Blob* key, const Blob* value, Reply* reply) noexcept nogil:
        cdef uint32_t number = ABSENT
        cdef uint32_t write
        cdef const Record* record
        if value.size >= VALUE_HEAD:
            memcpy(&number, value.data + 8, 4)
        if number < self.count:
            record = self.records + number
            if order(record.key, record.key_size, key.data, key.size) == 0:
                self.writes.judge(number, value.data, value.size, reply)
                return
        elif origin_of(self.writes.run, number, value.data, value.size, &write) == OTHER_RUN:
            reply.unchecked += 1  # An earlier load had more records.
            return
        if self.writes.is_ours:
            reply_wrong(reply, ABSENT, key.data, key.size)
        else:
            reply.unchecked += 1

    cdef void scan_end(self, const ScanCheck* scan, bint has_cursor, Reply* reply) noexcept nogil:
        cdef Py_ssize_t place = scan.place
        if self.writes is not None:
            return
        if has_cursor:
            if reply.keys == 0:
                reply_wrong(reply, scan.start, NULL, 0)
        elif scan.table != NULL and self.truth.ordered != NULL:
            while place < self.truth.present and may_be_absent(scan.table + self.truth.ordered[place]):
                place += 1
            if place < self.truth.present:
                reply_wrong(reply, self.truth.ordered[place], NULL, 0)

    cdef int take_greeting(self, const uint8_t* data, Py_ssize_t size, Reply* reply) noexcept nogil:
        return GARBAGE

    def __len__(self):
        return self.count

    def record(self, Py_ssize_t number):
        """Return the key and the value of a record."""
        return self.truth.record(number)

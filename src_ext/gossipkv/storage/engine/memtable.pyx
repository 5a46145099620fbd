"""Records that are in no run yet: a B+tree over an arena.

Records are appended to chunks and never move, so a slice of a record stays valid as long as the memtable. A put over an
existing key makes a new record; the old one's bytes stay allocated and counted. A tombstone is a record like any other.
So nothing is ever removed, and the tree only grows: a full node is split on the way down, before anything is put below
it.

A node has eight bytes of each key beside the pointer to its record, so a search seldom follows a pointer. These bytes
begin where keys may differ: all keys between two separators share the separators' common prefix (`depth`), so long
common prefixes, such as the space, cost nothing.

A filter of three bits in one cache line for each key answers most lookups of absent keys. Its size is fixed from the
start, a 32nd of `most_bytes`: 12 bits a record for small ones, 37 for those of 120 bytes.

Rules for editors:

* One thread writes and reads. A cursor is valid until the next put.
* All memory belongs to the chunks and the filter, and is counted when it is handed out. A put that finds no memory
  changes no answer.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memmove

from gossipkv.storage._storage cimport compare_keys, hash64_of, prefetch, set_bit, store32, word_of

cdef extern from "gossipkv/storage/region.h" nogil:
    void* region_resize "gkv_region_resize"(void* old, size_t old_size, size_t size)
    void region_free "gkv_region_free"(void* region, size_t size)
    void wish_large_pages "gkv_wish_large_pages"(const void* region, size_t size)

cdef enum:
    INNER_CHILDREN = 64
    MIN_CHUNK_BYTES = 1 << 20
    MAX_CHUNK_BYTES = 1 << 26              # Address space only; memory is allocated when it is written, by pages.
    LARGE_PAGE_BYTES = 1 << 21  # Without large pages, every miss in the tree would also miss the page table.
    OWN_CHUNK_BYTES = 1 << 18               # A record of this size or more has its own chunk.
    MEMORY_PAGE_BYTES = 4096
    LINE = 64
    WORDS_LINES = LEAF_RECORDS * 8 // LINE + 1
    MIN_FILTER_BYTES = 4096
    FILTER_SHARE = 32                       # The filter takes this fraction of `most_bytes`.
    MAX_FILTER_BYTES = 1 << 30
    MAX_LEVELS = 16                        # Each level has at least 32 times as many nodes as the one above.
    NO_MEMORY = -1
    NO_OPERATION = -2


cdef struct InnerNode:
    int count                       # Number of children; there is one separator less.
    uint32_t depth
    uint64_t words[INNER_CHILDREN]
    const uint8_t* separators[INNER_CHILDREN]       # Records; keys from a separator on lie behind it.
    void* children[INNER_CHILDREN]


cdef struct PathStep:
    # A step on the way from the root: a node, and the index of its next child.
    InnerNode* inner
    int at


cdef inline uint32_t shared_bytes(const uint8_t* one, const uint8_t* other) noexcept nogil:
    """Count the leading bytes in which the keys of two records agree."""
    cdef Slice a = record_key(one), b = record_key(other)
    cdef Py_ssize_t least = min(a.size, b.size), at = 0
    while at < least and a.data[at] == b.data[at]:
        at += 1
    return <uint32_t> at


cdef inline uint64_t record_word(const uint8_t* record, uint32_t depth) noexcept nogil:
    cdef Slice key = record_key(record)
    return word_of(key.data, key.size, depth)


cdef inline int words_below(const uint64_t* words, int count, uint64_t word) noexcept nogil:
    """Count the words, which ascend, that are less than `word`, without an unpredictable branch."""
    cdef int low = 0, half
    while count > 1:
        half = count // 2
        low += half * (words[low + half - 1] < word)
        count -= half
    return low + (count == 1 and words[low] < word)


cdef inline int place_in(
    const uint64_t* words, const uint8_t** records, int count, uint32_t depth, const uint8_t* key, Py_ssize_t size,
    bint* same
) noexcept nogil:
    """Count the records below `key`; `same` is set if the next record has that key."""
    return place_from(
        words_below(words, count, word_of(key, size, depth)), words, records, count, depth, key, size, same
    )


cdef inline int place_from(
    int low, const uint64_t* words, const uint8_t** records, int count, uint32_t depth, const uint8_t* key,
    Py_ssize_t size, bint* same
) noexcept nogil:
    """Do `place_in`; `low`: the count of words that are less than the key's."""
    cdef uint64_t word = word_of(key, size, depth)
    cdef int high, middle, order
    cdef Slice found
    same[0] = False
    if low == count or words[low] != word:
        return low
    high = low + 1
    while high < count and words[high] == word:
        high += 1
    while low < high:
        middle = (low + high) // 2
        found = record_key(records[middle])
        order = compare_keys(found.data + depth, found.size - depth, key + depth, size - depth)
        if order == 0:
            same[0] = True
            return middle
        if order < 0:
            low = middle + 1
        else:
            high = middle
    return low


cdef inline int child_of(InnerNode* inner, const uint8_t* key, Py_ssize_t size) noexcept nogil:
    """Return the index of the child that has the key, if any has."""
    cdef bint same = False
    cdef int below = place_in(inner.words, inner.separators, inner.count - 1, inner.depth, key, size, &same)
    return below + same


cdef inline void prefetch_node(const void* node, bint whole) noexcept nogil:
    """Prefetch a node's words, which are searched from their middle; with `whole`, a complete leaf, to be changed."""
    cdef int line
    for line in range(<int> sizeof(Leaf) // LINE if whole else WORDS_LINES):
        prefetch(<const uint8_t*> node + line * LINE)


cdef void deepen(uint64_t* words, const uint8_t** records, int count, uint32_t depth) noexcept nogil:
    """Recompute the words from another depth."""
    cdef int at
    for at in range(count):
        words[at] = record_word(records[at], depth)


cdef uint8_t* add_chunk(Memtable self, uint64_t size) noexcept nogil:
    """Allocate a chunk of zeros; NULL: there is no memory."""
    cdef Py_ssize_t capacity
    cdef Chunk* grown
    cdef uint8_t* data
    if self.chunk_count == self.chunk_capacity:
        capacity = max(<Py_ssize_t> 16, 2 * self.chunk_capacity)
        grown = <Chunk*> realloc(self.chunks, <size_t> capacity * sizeof(Chunk))
        if grown == NULL:
            return NULL
        self.chunks = grown
        self.chunk_capacity = capacity
    size = (size + MEMORY_PAGE_BYTES - 1) // MEMORY_PAGE_BYTES * MEMORY_PAGE_BYTES
    if size >= LARGE_PAGE_BYTES:
        size += LARGE_PAGE_BYTES    # Room to begin at a whole large page.
    data = <uint8_t*> region_resize(NULL, 0, size)
    if data == NULL:
        return NULL
    self.chunks[self.chunk_count].data = data
    self.chunks[self.chunk_count].size = size
    self.chunk_count += 1
    if size >= LARGE_PAGE_BYTES:
        wish_large_pages(data, size)
        data += (LARGE_PAGE_BYTES - <uint64_t> data % LARGE_PAGE_BYTES) % LARGE_PAGE_BYTES
    return data


cdef uint8_t* take_bytes(Memtable self, uint64_t size) noexcept nogil:
    """Allocate zeroed bytes in the arena; NULL: there is no memory."""
    cdef uint8_t* taken
    if size >= OWN_CHUNK_BYTES:
        taken = add_chunk(self, size)
        if taken != NULL:
            self.used += size
        return taken
    if size > self.free_size:
        taken = add_chunk(self, self.chunk_bytes)
        if taken == NULL:
            return NULL
        self.free_bytes = taken
        self.free_size = self.chunk_bytes
    taken = self.free_bytes
    self.free_bytes += size
    self.free_size -= size
    self.used += size
    return taken


cdef uint8_t* take_node(Memtable self, uint64_t size) noexcept nogil:
    """Allocate a node at the start of a cache line."""
    cdef uint64_t gap = (LINE - <uint64_t> self.free_bytes % LINE) % LINE
    if gap + size <= self.free_size:
        self.free_bytes += gap
        self.free_size -= gap
        self.used += gap
    return take_bytes(self, size)      # A new chunk begins at a cache line.


cdef const uint8_t* write_record(
    Memtable self, uint8_t flag, const uint8_t* key, Py_ssize_t key_size, const uint8_t* value, Py_ssize_t value_size
) noexcept nogil:
    cdef uint8_t* record = take_bytes(self, <uint64_t> (RECORD_HEADER_BYTES + key_size + 1 + value_size))
    cdef uint16_t size = <uint16_t> key_size
    if record == NULL:
        return NULL
    memcpy(record, &size, 2)
    store32(record + 2, <uint32_t> (value_size + 1))
    memcpy(record + RECORD_HEADER_BYTES, key, <size_t> key_size)
    record[RECORD_HEADER_BYTES + key_size] = flag
    if value_size:
        memcpy(record + RECORD_HEADER_BYTES + key_size + 1, value, <size_t> value_size)
    return record


cdef inline bint is_full(Memtable self, const void* node, bint is_leaf) noexcept nogil:
    if is_leaf:
        return (<const Leaf*> node).count == LEAF_RECORDS
    return (<const InnerNode*> node).count == INNER_CHILDREN


cdef const uint8_t* split_leaf(
    Memtable self, Leaf* left, const uint8_t* record, const uint8_t* lower, const uint8_t* upper, void** made
) noexcept nogil:
    """Move half of a leaf to a new one behind it; returns the separator, NULL if there is no memory.

    If keys come in ascending order, the new leaf begins with the new key, and the old leaf stays full.
    """
    cdef Leaf* right = <Leaf*> take_node(self, sizeof(Leaf))
    cdef Slice key = record_key(record), last = record_key(left.records[left.count - 1])
    cdef int keep = left.count // 2, at
    cdef uint64_t moved = 0
    cdef const uint8_t* separator
    if right == NULL:
        return NULL
    if left.appended >= LEAF_RECORDS // 2 and compare_keys(last.data, last.size, key.data, key.size) < 0:
        keep = left.count
    right.count = left.count - keep
    separator = left.records[keep] if right.count else record
    memcpy(right.words, left.words + keep, <size_t> right.count * 8)
    memcpy(right.records, left.records + keep, <size_t> right.count * sizeof(void*))
    for at in range(right.count):
        moved += record_size_of(right.records[at])
    left.count = keep
    left.appended = 0       # Otherwise descending keys from here on would get one leaf each.
    left.size_bytes -= moved
    right.size_bytes = moved
    right.depth = left.depth
    right.after = left.after
    right.before = left
    if right.after != NULL:
        right.after.before = right
    left.after = right
    if lower != NULL and shared_bytes(lower, separator) != left.depth:
        left.depth = shared_bytes(lower, separator)
        deepen(left.words, left.records, left.count, left.depth)
    if upper != NULL and shared_bytes(separator, upper) != right.depth:
        right.depth = shared_bytes(separator, upper)
        deepen(right.words, right.records, right.count, right.depth)
    made[0] = right
    return separator


cdef const uint8_t* split_inner(
    Memtable self, InnerNode* left, const uint8_t* lower, const uint8_t* upper, void** made
) noexcept nogil:
    """Split an inner node like `split_leaf`; the separator moves up."""
    cdef InnerNode* right = <InnerNode*> take_node(self, sizeof(InnerNode))
    cdef int keep = left.count // 2
    cdef const uint8_t* separator
    if right == NULL:
        return NULL
    right.count = left.count - keep
    separator = left.separators[keep - 1]
    memcpy(right.children, left.children + keep, <size_t> right.count * sizeof(void*))
    memcpy(right.separators, left.separators + keep, <size_t> (right.count - 1) * sizeof(void*))
    memcpy(right.words, left.words + keep, <size_t> (right.count - 1) * 8)
    left.count = keep
    right.depth = left.depth
    if lower != NULL and shared_bytes(lower, separator) != left.depth:
        left.depth = shared_bytes(lower, separator)
        deepen(left.words, left.separators, left.count - 1, left.depth)
    if upper != NULL and shared_bytes(separator, upper) != right.depth:
        right.depth = shared_bytes(separator, upper)
        deepen(right.words, right.separators, right.count - 1, right.depth)
    made[0] = right
    return separator


cdef int split_nodes(Memtable self, const PathStep* path, int depth, const uint8_t* record) noexcept nogil:
    """Split the full child at the end of a path from the root, whose last node has room; -1: no memory."""
    cdef InnerNode* parent = path[depth - 1].inner
    cdef int at = path[depth - 1].at, behind = parent.count - 1 - at, i
    cdef void* made = NULL
    cdef const uint8_t* separator
    cdef const uint8_t* lower = NULL
    cdef const uint8_t* upper = NULL
    for i in range(depth):      # The nearest bounds are lowest in the tree.
        if path[i].at > 0:
            lower = path[i].inner.separators[path[i].at - 1]
        if path[i].at < path[i].inner.count - 1:
            upper = path[i].inner.separators[path[i].at]
    if depth == self.levels:
        separator = split_leaf(self, <Leaf*> parent.children[at], record, lower, upper, &made)
    else:
        separator = split_inner(self, <InnerNode*> parent.children[at], lower, upper, &made)
    if separator == NULL:
        return NO_MEMORY
    memmove(parent.words + at + 1, parent.words + at, <size_t> behind * 8)
    memmove(parent.separators + at + 1, parent.separators + at, <size_t> behind * sizeof(void*))
    memmove(parent.children + at + 2, parent.children + at + 1, <size_t> behind * sizeof(void*))
    parent.words[at] = record_word(separator, parent.depth)
    parent.separators[at] = separator
    parent.children[at + 1] = made
    parent.count += 1
    return 0


cdef Leaf* leaf_for(Memtable self, const uint8_t* record) noexcept nogil:
    """Return the leaf for the record, with room for it; NULL: there is no memory."""
    cdef Slice key = record_key(record)
    cdef PathStep path[MAX_LEVELS]
    cdef void* node
    cdef InnerNode* inner
    cdef int depth = 0
    if is_full(self, self.root, self.levels == 0):
        inner = <InnerNode*> take_node(self, sizeof(InnerNode))
        if inner == NULL or self.levels == MAX_LEVELS:
            return NULL
        inner.count = 1
        inner.children[0] = self.root
        self.root = inner
        self.levels += 1
    node = self.root
    while depth < self.levels:
        inner = <InnerNode*> node
        path[depth].inner = inner
        path[depth].at = child_of(inner, key.data, key.size)
        node = inner.children[path[depth].at]
        depth += 1
        prefetch_node(node, depth == self.levels)
        if is_full(self, node, depth == self.levels):
            if split_nodes(self, path, depth, record) < 0:
                return NULL
            path[depth - 1].at = child_of(inner, key.data, key.size)
            node = inner.children[path[depth - 1].at]
    return <Leaf*> node


cdef Leaf* leaf_of(Memtable self, const uint8_t* key, Py_ssize_t size) noexcept nogil:
    """Return the leaf that has the key, if any has."""
    cdef void* node = self.root
    cdef int below = self.levels
    while below > 0:
        below -= 1
        node = (<InnerNode*> node).children[child_of(<InnerNode*> node, key, size)]
        prefetch_node(node, False)
    return <Leaf*> node


cdef Leaf* edge_leaf(Memtable self, bint last) noexcept nogil:
    cdef void* node = self.root
    cdef int below = self.levels
    while below > 0:
        below -= 1
        node = (<InnerNode*> node).children[(<InnerNode*> node).count - 1 if last else 0]
    return <Leaf*> node


@cython.final
cdef class Memtable:
    """Records in key order; `most_bytes` is the planned size, which determines the filter's. Raises MemoryError.

    Lifetime: records do not move while the memtable exists; its end returns all memory to the system.
    """

    def __cinit__(self, uint64_t most_bytes):
        cdef uint64_t size = min(
            <uint64_t> MAX_FILTER_BYTES, max(<uint64_t> MIN_FILTER_BYTES, most_bytes // FILTER_SHARE)
        )
        cdef Leaf* leaf
        self.most_bytes = most_bytes
        self.chunk_bytes = min(<uint64_t> MAX_CHUNK_BYTES, max(<uint64_t> MIN_CHUNK_BYTES, most_bytes))
        self.filter_lines = size // LINE
        self.filter = take_node(self, self.filter_lines * LINE)
        if self.filter == NULL:
            raise MemoryError
        leaf = <Leaf*> take_node(self, sizeof(Leaf))
        if leaf == NULL:
            raise MemoryError
        self.root = leaf

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.chunk_count):
            region_free(self.chunks[i].data, self.chunks[i].size)
        free(self.chunks)

    # -- the arena -------------------------------------------------------------------------------------------------

    # -- putting ---------------------------------------------------------------------------------------------------

    cdef int put(
        self, uint8_t flag, const uint8_t* key, Py_ssize_t key_size, const uint8_t* value, Py_ssize_t value_size
    ) noexcept nogil:
        """Put a record, replacing the one with its key; -1: there is no memory.

        Requires: key and value are within their limits.
        """
        cdef uint64_t hash = hash64_of(key, key_size, 0)
        cdef uint8_t* line = self.filter + bucket_of(hash, self.filter_lines) * LINE
        cdef const uint8_t* record
        cdef Leaf* leaf
        cdef int at
        cdef bint same = False
        prefetch(line)
        record = write_record(self, flag, key, key_size, value, value_size)
        if record == NULL:
            return NO_MEMORY
        leaf = leaf_for(self, record)
        if leaf == NULL:
            return NO_MEMORY
        at = place_in(leaf.words, leaf.records, leaf.count, leaf.depth, key, key_size, &same)
        leaf.size_bytes += record_size_of(record)
        self.tombstones += flag == TOMBSTONE
        if same:
            leaf.size_bytes -= record_size_of(leaf.records[at])
            leaf.records[at] = record
            return 0
        leaf.appended = leaf.appended + 1 if at == leaf.count else 0
        memmove(leaf.words + at + 1, leaf.words + at, <size_t> (leaf.count - at) * 8)
        memmove(leaf.records + at + 1, leaf.records + at, <size_t> (leaf.count - at) * sizeof(void*))
        leaf.words[at] = word_of(key, key_size, leaf.depth)
        leaf.records[at] = record
        leaf.count += 1
        self.records += 1
        set_bit(line, hash & (FILTER_LINE_BITS - 1))
        set_bit(line, (hash >> 9) & (FILTER_LINE_BITS - 1))
        set_bit(line, (hash >> 18) & (FILTER_LINE_BITS - 1))
        return 0

    cdef int apply_operations(self, const uint8_t* at, Py_ssize_t size) noexcept nogil:
        """Apply a batch's puts and deletes; `NO_OPERATION`: it is invalid, and nothing was done."""
        cdef const uint8_t* end = at + size
        cdef const uint8_t* seen = at
        cdef Operation operation
        while seen < end:
            seen = next_operation(seen, end, &operation)
            if seen == NULL:
                return NO_OPERATION
        while at < end:
            at = next_operation(at, end, &operation)
            if at == NULL:
                return NO_OPERATION
            if operation.kind < NEW_SPACE and self.put(
                operation.kind, operation.key, operation.key_size, operation.value, operation.value_size
            ) < 0:
                return NO_MEMORY
        return 0

    # -- finding ---------------------------------------------------------------------------------------------------

    cdef bint find(self, const uint8_t* key, Py_ssize_t size, Slice* value) noexcept nogil:
        """Return True, and the value with its flag, if the key is here. `may_have` is cheaper for absent keys."""
        cdef Leaf* leaf = leaf_of(self, key, size)
        cdef bint same = False
        cdef int at = place_in(leaf.words, leaf.records, leaf.count, leaf.depth, key, size, &same)
        if same:
            value[0] = record_value(leaf.records[at])
        return same

    cdef void seek(self, const uint8_t* key, Py_ssize_t size, bint reverse, MemtableCursor* cursor) noexcept nogil:
        """Move to the first record not below `key`; backwards, to the last one below. `key` NULL: no bound."""
        cdef bint same = False
        if key == NULL:
            cursor.leaf = edge_leaf(self, reverse)
            cursor.at = cursor.leaf.count if reverse else 0
        else:
            cursor.leaf = leaf_of(self, key, size)
            cursor.at = place_in(
                cursor.leaf.words, cursor.leaf.records, cursor.leaf.count, cursor.leaf.depth, key, size, &same
            )
        if reverse:
            cursor_step(cursor, True)
        elif cursor.at == cursor.leaf.count:
            cursor.leaf = cursor.leaf.after
            cursor.at = 0

    cdef Extent extent_between(
        self, const uint8_t* start, Py_ssize_t start_size, const uint8_t* end, Py_ssize_t end_size
    ) noexcept nogil:
        """Measure the records from `start` up to `end`; `end` NULL: no bound. Requires: `start` is below `end`."""
        cdef MemtableCursor at, last
        cdef Extent found = Extent(0, 0)
        self.seek(start, start_size, False, &at)
        last.leaf = NULL
        last.at = 0
        if end != NULL:
            self.seek(end, end_size, False, &last)
        while at.leaf != last.leaf or (at.leaf != NULL and at.at < last.at):
            if at.at == 0 and at.leaf != last.leaf:
                found.size_bytes += at.leaf.size_bytes
                found.records += <uint64_t> at.leaf.count
                at.leaf = at.leaf.after
            else:
                found.size_bytes += record_size_of(cursor_record(&at))
                found.records += 1
                cursor_step(&at, False)
        return found

    cdef Slice key_behind(self, const uint8_t* start, Py_ssize_t start_size, uint64_t size_bytes) noexcept nogil:
        """Return the key of the record that contains byte `size_bytes` from `start` on.

        Requires: there are that many.
        """
        cdef MemtableCursor at
        cdef Slice key
        cdef uint64_t here
        self.seek(start, start_size, False, &at)
        while True:
            if at.at == 0 and at.leaf.size_bytes < size_bytes and at.leaf.after != NULL:
                size_bytes -= at.leaf.size_bytes
                at.leaf = at.leaf.after
                continue
            key = record_key(cursor_record(&at))
            here = record_size_of(cursor_record(&at))
            cursor_step(&at, False)
            if size_bytes <= here or at.leaf == NULL:
                return key
            size_bytes -= here

    # -- Python ----------------------------------------------------------------------------------------------------

    @property
    def bytes_used(self):
        """All allocated memory: records, including replaced ones, nodes and the filter."""
        return self.used

    def apply(self, bytes payload not None):
        """Apply a batch's puts and deletes; its new and dropped spaces are ignored.

        Raises ValueError: the payload is invalid; nothing was done. MemoryError: a part may have been done.
        """
        self.applied(self.apply_operations(<const uint8_t*> PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload)))

    def apply_batch(self, Batch batch not None):
        """Apply a batch's puts and deletes, without a copy. Raises MemoryError: a part may have been done."""
        self.applied(self.apply_operations(batch.data, batch.used))

    cdef int applied(self, int result) except -1:
        if result == NO_OPERATION:
            raise ValueError("the payload of the batch has an invalid operation")
        if result < 0:
            raise MemoryError
        return 0

    def find_record(self, bytes key not None):
        """Return flag and value of an internal key, or None."""
        cdef const uint8_t* data = <const uint8_t*> PyBytes_AS_STRING(key)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(key)
        cdef Slice value
        if not may_have(self, hash64_of(data, size, 0)) or not self.find(data, size, &value):
            return None
        return PyBytes_FromStringAndSize(<const char*> value.data, value.size)

    def list_records(self, bytes bound=None, *, bint reverse=False):
        """Return internal keys, flags and values, from the first not below `bound` on, or back from the last below."""
        cdef MemtableCursor cursor
        cdef const uint8_t* record
        cdef list found = []
        if bound is None:
            self.seek(NULL, 0, reverse, &cursor)
        else:
            self.seek(<const uint8_t*> PyBytes_AS_STRING(bound), PyBytes_GET_SIZE(bound), reverse, &cursor)
        while cursor.leaf != NULL:
            record = cursor_record(&cursor)
            found.append((slice_bytes(record_key(record)), slice_bytes(record_value(record))))
            cursor_step(&cursor, reverse)
        return found


cdef inline uint64_t record_size_of(const uint8_t* record) noexcept nogil:
    cdef uint16_t size
    memcpy(&size, record, 2)
    return <uint64_t> RECORD_HEADER_BYTES + size + load32(record + 2)


cdef bytes slice_bytes(Slice slice):
    return PyBytes_FromStringAndSize(<const char*> slice.data, slice.size)

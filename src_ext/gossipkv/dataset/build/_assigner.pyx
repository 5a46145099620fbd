"""Assigns each record of a batch to a sorted file, and verifies each key against the claims about its file.

One pass over a batch does both, for the function that groups the records and for every other possible function.  A key
without a hash under a function (it is not text) strays under that function.  Keys below 0x80 hash alike as bytes and as
text, so most keys are hashed once for all functions but `text`.
"""

cimport cython
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from gossipkv.keyspace._keyspace cimport CASCADING, TEXT, partition_of, partition_of_hash, sequins_hash
from gossipkv.storage._storage cimport RecordBatch, BatchRecord

cdef enum:
    MAX_CLAIMS = 5

cdef extern from *:
    """
    #define GKV_HIGH_BITS 0x8080808080808080ULL
    #define GKV_UNWANTED 0xFFFFFFFFU
    """
    uint64_t HIGH_BITS "GKV_HIGH_BITS"
    uint32_t UNWANTED "GKV_UNWANTED"


@cython.final
cdef class Assigner:
    """Groups records by a function, and counts the records that stray from the claims about their file.

    Args:
        function: the code of the function by which records are grouped.
        groups: for each partition the number of its sorted file, or -1 if its records are not wanted.
        claims: the codes of the functions under which keys are verified.
    """

    cdef int function
    cdef bint shares_hash  # Any function but `text` is used.
    cdef Py_ssize_t count
    cdef uint32_t* groups
    cdef int claim_count
    cdef int claims[MAX_CLAIMS]
    cdef Py_ssize_t expected[MAX_CLAIMS]
    cdef uint64_t misses[MAX_CLAIMS]
    cdef Py_ssize_t first[MAX_CLAIMS]
    cdef readonly Py_ssize_t homeless  # The first record of the last batch without a partition to be grouped by, or -1.

    def __cinit__(self, int function, groups not None, claims=()):
        cdef Py_ssize_t place
        cdef int32_t group
        if len(groups) < 1 or len(claims) > MAX_CLAIMS:
            raise ValueError(
                f"got {len(groups)} partitions and {len(claims)} claims; at least 1 partition and at most "
                f"{MAX_CLAIMS} claims are allowed"
            )
        for code in (function, *claims):
            if not 0 <= <int> code <= <int> CASCADING:
                raise ValueError(f"no partition function has the code {code}")
        self.function = function
        self.shares_hash = any(code != TEXT for code in (function, *claims))
        self.count = len(groups)
        self.groups = <uint32_t*> malloc(<size_t> self.count * sizeof(uint32_t))
        if self.groups == NULL:
            raise MemoryError
        for place in range(self.count):
            group = groups[place]
            self.groups[place] = UNWANTED if group < 0 else <uint32_t> group
        self.claim_count = <int> len(claims)
        for place in range(self.claim_count):
            self.claims[place] = claims[place]
            self.expected[place] = -1
            self.misses[place] = 0

    def __dealloc__(self):
        free(self.groups)

    def begin_file(self, expected not None):
        """Begin another file; `expected` is its partition under each claim, None for a file without keys."""
        cdef Py_ssize_t place
        if len(expected) != self.claim_count:
            raise ValueError(f"got {len(expected)} expected partitions for {self.claim_count} claims")
        for place in range(self.claim_count):
            self.expected[place] = -1 if expected[place] is None else expected[place]

    def assign(self, RecordBatch batch not None):
        """Set every record's group; return for each claim the number of the first stray record, or -1."""
        cdef Py_ssize_t claim
        for claim in range(self.claim_count):
            self.first[claim] = -1
        self.homeless = -1
        with nogil:
            self.assign_all(batch)
        return [self.first[claim] for claim in range(self.claim_count)]

    def strays(self):
        """Return the number of strays from each claim so far."""
        return [self.misses[claim] for claim in range(self.claim_count)]

    def drop_unwanted(self, RecordBatch batch not None):
        """Remove the records of unwanted partitions; the others keep their order."""
        cdef Py_ssize_t number, kept = 0
        with nogil:
            for number in range(batch.count):
                if batch.records[number].group != UNWANTED:
                    batch.records[kept] = batch.records[number]
                    kept += 1
        batch.count = kept

    cdef void assign_all(self, RecordBatch batch) noexcept nogil:
        cdef Py_ssize_t number, place, held
        cdef BatchRecord* record
        cdef int claim
        cdef int32_t h = 0
        cdef bint ascii
        for number in range(batch.count):
            record = &batch.records[number]
            ascii = self.shares_hash and is_ascii(record.key, record.key_size)
            if ascii:
                h = sequins_hash(record.key, record.key_size)
            place = self.partition(self.function, record, ascii, h)
            record.group = UNWANTED if place < 0 else self.groups[place]
            if place < 0 and self.homeless < 0:
                self.homeless = number
            for claim in range(self.claim_count):
                held = place
                if self.claims[claim] != self.function:
                    held = self.partition(self.claims[claim], record, ascii, h)
                if held < 0 or held != self.expected[claim]:
                    self.misses[claim] += 1
                    if self.first[claim] < 0:
                        self.first[claim] = number

    cdef inline Py_ssize_t partition(self, int function, const BatchRecord* record, bint ascii, int32_t h) noexcept nogil:
        if ascii and function != TEXT:
            return partition_of_hash(function, h, self.count)
        return partition_of(function, record.key, record.key_size, self.count)


cdef inline bint is_ascii(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef uint64_t word, all_bits = 0
    cdef Py_ssize_t at = 0
    while size - at >= 8:
        memcpy(&word, data + at, 8)
        all_bits |= word
        at += 8
    while at < size:
        all_bits |= data[at]
        at += 1
    return all_bits & HIGH_BITS == 0

"""Which sorted file each record of a batch goes into, and whether every key is where its file claims to be.

One pass over a batch does both, for the function that the records are grouped by and for every other function that
the files may have been made with.  A key whose hash does not exist under a function (it is not text) strays under it.
Keys below 0x80 hash alike as bytes and as text, so most are hashed once for all functions but `text`.
"""

cimport cython
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from gossipkv.keyspace._hashing cimport CASCADING, TEXT, partition_of, partition_of_hash, sequins_hash
from gossipkv.storage._storage cimport Batch, BatchRecord

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
    """Groups records by a function, and counts those that stray from what the claims say about their file.

    Args:
        function: the code of the function by which records are grouped.
        groups: for each partition the number of its sorted file, or -1: its records are not wanted.
        claims: the codes of the functions under which keys are verified.
    """

    cdef int function
    cdef bint shares_hash                 # Another function than `text` is asked.
    cdef Py_ssize_t count
    cdef uint32_t* groups
    cdef int claim_count
    cdef int claims[MAX_CLAIMS]
    cdef Py_ssize_t expected[MAX_CLAIMS]
    cdef uint64_t misses[MAX_CLAIMS]
    cdef Py_ssize_t first[MAX_CLAIMS]
    cdef readonly Py_ssize_t homeless     # In the last batch, the first record without a partition to be grouped by.

    def __cinit__(self, int function, groups not None, claims=()):
        cdef Py_ssize_t place
        cdef int32_t group
        if len(groups) < 1 or len(claims) > MAX_CLAIMS:
            raise ValueError(f"{len(groups)} partitions and {len(claims)} claims: at least 1, at most {MAX_CLAIMS}")
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
        """The next records are of another file: the partition that it holds under each claim; None: it has no keys."""
        cdef Py_ssize_t place
        if len(expected) != self.claim_count:
            raise ValueError(f"{len(expected)} expectations for {self.claim_count} claims")
        for place in range(self.claim_count):
            self.expected[place] = -1 if expected[place] is None else expected[place]

    def assign(self, Batch batch not None):
        """Set every record's group; for each claim, the number of the first record that strays from it, or -1."""
        cdef Py_ssize_t claim
        for claim in range(self.claim_count):
            self.first[claim] = -1
        self.homeless = -1
        with nogil:
            self.assign_all(batch)
        return [self.first[claim] for claim in range(self.claim_count)]

    def strays(self):
        """How many keys have strayed from each claim so far."""
        return [self.misses[claim] for claim in range(self.claim_count)]

    def drop_unwanted(self, Batch batch not None):
        """Take the records out whose partition is not wanted; the others keep their order."""
        cdef Py_ssize_t number, kept = 0
        with nogil:
            for number in range(batch.count):
                if batch.records[number].group != UNWANTED:
                    batch.records[kept] = batch.records[number]
                    kept += 1
        batch.count = kept

    cdef void assign_all(self, Batch batch) noexcept nogil:
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

from libc.stdint cimport uint32_t, uint64_t


cdef enum:
    # At 90 % load the queue of carried entries exceeds 150 once in 10^12 buckets, so a longer one is no accident.
    MAX_CARRIED = 1024


cdef class IndexRunReader:
    cdef Scratch scratch
    cdef uint64_t offset, total
    cdef bytes part
    cdef Py_ssize_t at, count
    cdef int level

    cdef bint advance(self) except -1


cdef class BucketWriter:
    cdef PageWriter out
    cdef uint64_t home_count, at
    cdef uint64_t home[BUCKET_SLOTS]
    cdef uint64_t carried[MAX_CARRIED]
    cdef int at_home, waiting, head

    cdef int put(self, Item item) except -1 nogil
    cdef int emit(self) except -1 nogil
    cdef int finish(self) except -1 nogil


cdef class IndexBuilder:
    cdef object make_scratch
    cdef Item* items
    cdef Py_ssize_t used, capacity, limit
    cdef readonly uint64_t count
    cdef list runs
    cdef int fan_in

    cdef int add(self, uint64_t hash, uint32_t position) except -1 nogil
    cdef int grow(self) except -1
    cdef int sort(self) except -1
    cdef int spill(self) except -1
    cdef int write_run(self, Scratch scratch) except -1
    cdef int drain(self, list runs, Scratch scratch, BucketWriter buckets) except -1
    cdef int gather(self, IndexRunReader run, uint64_t last) except -1
    cdef int write(self, PageWriter out, uint64_t* home_count, uint64_t* bucket_count) except -1

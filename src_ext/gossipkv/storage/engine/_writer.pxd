# The writing end of the log.

from libc.stdint cimport uint64_t

from gossipkv.storage.engine._log cimport Batch, Frames
from gossipkv.storage.engine._memtable cimport Memtable


cdef class Active:
    cdef readonly object name
    cdef readonly int descriptor
    cdef readonly uint64_t size_bytes
    cdef readonly uint64_t offset
    cdef readonly uint64_t first


cdef class Planned:
    cdef int kind
    cdef uint64_t position
    cdef Batch batch


cdef class Group:
    cdef readonly int descriptor
    cdef readonly uint64_t offset
    cdef readonly object data
    cdef readonly uint64_t position
    cdef readonly bint ends


cdef class Written:
    cdef readonly list batches
    cdef readonly uint64_t size_bytes
    cdef readonly object closed


cdef class Writer:
    cdef readonly Active active
    cdef public Active prepared
    cdef readonly uint64_t position
    cdef readonly uint64_t synced
    cdef readonly uint64_t waiting_bytes
    cdef public uint64_t cost
    cdef public Memtable memtable
    cdef public set spaces
    cdef uint64_t open_until        # Plain batches are simply taken that end before it.
    cdef uint64_t life
    cdef uint64_t offset            # Where the next frame is planned.
    cdef uint64_t limit             # No batch of that segment goes beyond it.
    cdef uint64_t claimed           # The highest position that a written frame says is synced.
    cdef uint64_t last_batch        # The last batch's that was written in this life.
    cdef object planned             # A deque.
    cdef list flying
    cdef Frames frames
    cdef object data

    cdef uint64_t plan_frame(self, int kind, Batch batch, uint64_t gap, uint64_t size_bytes) except 0
    cdef bytes payload_of(self, int kind)

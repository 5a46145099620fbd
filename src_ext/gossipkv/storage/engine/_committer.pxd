# The thread that writes the log; `committer.h` has what runs in it.

from cpython.buffer cimport Py_buffer
from libc.stdint cimport uint8_t

cdef extern from "gossipkv/storage/engine/committer.h" nogil:
    ctypedef long long off_t
    ctypedef struct gkv_committer:
        int asked
        int answered
        int descriptor
        const uint8_t* data
        size_t size
        off_t offset
    int gkv_committer_start(gkv_committer* self)
    int gkv_committer_tell(int descriptor)
    int gkv_committer_wait(gkv_committer* self)
    int gkv_committer_is_done(gkv_committer* self)
    void gkv_committer_end(gkv_committer* self)
    void gkv_committer_close(gkv_committer* self)


cdef class Committer:
    cdef gkv_committer thread
    cdef Py_buffer view             # What the job writes, held as long as it may be read.
    cdef int process                # Whose thread it is: a fork has none.
    cdef bint is_open
    cdef readonly bint busy         # Whether a job has no result yet.

    cdef int check(self) except -1
    cdef int let_go(self) except -1

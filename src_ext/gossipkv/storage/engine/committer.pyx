"""A thread that writes the log and syncs it, so that no other thread waits for the disk.

A Python thread would take the GIL twice for each group, and Trio's threads cost several times a sync. This thread runs
`committer.h`, and answers by a descriptor that becomes readable.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t
from posix.unistd cimport getpid

import os

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


@cython.final
cdef class Committer:
    """Writes and syncs, one job at a time.

    Lifetime: `close` it; a forgotten committer is closed by garbage collection, after its job. In a forked process it
    has no thread, and can only be closed.
    """

    cdef gkv_committer thread
    cdef Py_buffer view             # The data of the job, held while it may be read.
    cdef int process                # The process of the thread, since a fork has none.
    cdef bint is_open
    cdef readonly bint busy         # True while a job has no result.

    def __cinit__(self):
        cdef int error = gkv_committer_start(&self.thread)
        if error:
            raise OSError(error, os.strerror(error))
        self.process = getpid()
        self.is_open = True

    def __dealloc__(self):
        self.let_go()

    def submit(self, int descriptor, data, unsigned long long offset):
        """Write all of `data` at `offset` of a file, then sync it; `result` returns the outcome.

        `data` and the descriptor must stay unchanged until then.

        Raises:
            ValueError: there is a job already, the committer is closed, or the offset is invalid.
        """
        self.check()
        if self.busy:
            raise ValueError("the committer already has a job")
        if offset > <unsigned long long> 0x7FFFFFFFFFFFFFFF:
            raise ValueError(f"{offset} is not an offset in a file")
        PyObject_GetBuffer(data, &self.view, PyBUF_SIMPLE)
        self.thread.descriptor = descriptor
        self.thread.data = <const uint8_t*> self.view.buf
        self.thread.size = <size_t> self.view.len
        self.thread.offset = <off_t> offset
        self.busy = True
        gkv_committer_tell(self.thread.asked)

    def fileno(self):
        """Return the descriptor that is readable from the end of the job until its result is taken.

        Raises:
            ValueError: the committer is closed.
        """
        self.check()
        return self.thread.answered

    def is_done(self):
        """Return True if `result` would not wait."""
        self.check()
        return self.busy and gkv_committer_is_done(&self.thread) != 0

    def result(self):
        """Wait for the end of the job, and forget it.

        Raises:
            OSError: the write or sync failed; any part of the data may be on the disk.
            ValueError: there is no job, or the committer is closed.
        """
        cdef int error
        self.check()
        if not self.busy:
            raise ValueError("the committer has no job")
        with nogil:
            error = gkv_committer_wait(&self.thread)
        self.busy = False
        PyBuffer_Release(&self.view)
        if error:
            raise OSError(error, os.strerror(error))

    def close(self):
        """End the thread after its job, whose result is lost; closing twice is harmless."""
        self.let_go()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.let_go()

    cdef int check(self) except -1:
        if not self.is_open:
            raise ValueError("the committer is closed")
        if self.process != getpid():
            raise ValueError("the committer belongs to another process")
        return 0

    cdef int let_go(self) except -1:
        if not self.is_open:
            return 0
        self.is_open = False
        if self.process == getpid():
            with nogil:
                if self.busy:
                    gkv_committer_wait(&self.thread)
                gkv_committer_end(&self.thread)
        gkv_committer_close(&self.thread)
        if self.busy:
            self.busy = False
            PyBuffer_Release(&self.view)
        return 0

"""One thread that writes the log and syncs it, so that nobody else waits for the disk.

A thread of Python's would have to take the interpreter's lock twice for each group, and Trio's threads cost several
times a sync's own time; this one runs `committer.h`, and answers by a descriptor that becomes readable.
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

    Lifetime: `close` it; what is forgotten is closed when it is collected, after its job.  In a process that was forked
    from its own it has no thread, and can only be closed.
    """

    cdef gkv_committer thread
    cdef Py_buffer view             # What the job writes, held as long as it may be read.
    cdef int process                # Whose thread it is: a fork has none.
    cdef bint is_open
    cdef readonly bint busy         # Whether a job has no result yet.

    def __cinit__(self):
        cdef int error = gkv_committer_start(&self.thread)
        if error:
            raise OSError(error, os.strerror(error))
        self.process = getpid()
        self.is_open = True

    def __dealloc__(self):
        self.let_go()

    def submit(self, int descriptor, data, unsigned long long offset):
        """Write all of `data` at `offset` of a file, then sync it: `result` says how that went.

        `data` and the descriptor stay as they are until then.

        Raises:
            ValueError: there is a job already, it is closed, or the offset is none.
        """
        self.check()
        if self.busy:
            raise ValueError("the committer has a job")
        if offset > <unsigned long long> 0x7FFFFFFFFFFFFFFF:
            raise ValueError(f"{offset} is no offset in a file")
        PyObject_GetBuffer(data, &self.view, PyBUF_SIMPLE)
        self.thread.descriptor = descriptor
        self.thread.data = <const uint8_t*> self.view.buf
        self.thread.size = <size_t> self.view.len
        self.thread.offset = <off_t> offset
        self.busy = True
        gkv_committer_tell(self.thread.asked)

    def fileno(self):
        """Return what becomes readable when the job is done, until its result is taken.

        Raises:
            ValueError: it is closed.
        """
        self.check()
        return self.thread.answered

    def is_done(self):
        """Whether `result` would not wait."""
        self.check()
        return self.busy and gkv_committer_is_done(&self.thread) != 0

    def result(self):
        """Wait for the job's end, and forget it.

        Raises:
            OSError: the system refused to write, or to sync: any part of it may be on the disk.
            ValueError: there is no job, or it is closed.
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
        """End the thread, after the job that it has, whose result is lost; again does nothing."""
        self.let_go()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.let_go()

    cdef int check(self) except -1:
        if not self.is_open:
            raise ValueError("the committer is closed")
        if self.process != getpid():
            raise ValueError("the committer is another process'")
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

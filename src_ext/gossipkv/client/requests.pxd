from libc.stdint cimport uint32_t, uint64_t

cdef enum RequestKind:
    REQUEST_OTHER
    REQUEST_GET
    REQUEST_GET_MANY
    REQUEST_COLUMN  # a `get_many` whose values become a column
    REQUEST_PAGE  # a `scan` whose records become columns


cdef class Request:
    cdef readonly str method
    cdef readonly bint is_repeatable
    cdef readonly bint is_done
    cdef readonly object result
    cdef readonly object error
    cdef public object owner
    cdef public object at
    cdef public object history
    cdef public bint is_inner
    cdef RequestKind kind
    cdef bytes head  # the database; other methods: name and parameters; encoded as in the frame
    cdef bytes subject  # the key; several keys are encoded as in the frame, one behind the other
    cdef Py_ssize_t count  # of several keys
    cdef bytes options  # encoded as in the frame, or None
    cdef readonly Py_ssize_t size_bytes  # upper bound on the size of the frame
    cdef readonly object session  # the session that has it in flight, or None
    cdef readonly uint32_t message_id  # its id in the last session that had it in flight
    cdef uint64_t begin  # offset of its frame in the stream of that session
    cdef uint64_t heard  # the session's `received` when it was sent
    cdef readonly double due
    cdef Py_ssize_t place  # index in the heap of `deadlines`; -1: in none
    cdef object deadlines  # the heap that has it, or None

    cdef int finish(self, object result, object error) except -1

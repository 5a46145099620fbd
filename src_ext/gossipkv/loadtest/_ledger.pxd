# What a run counts, by stage and target.  The rules stand in _ledger.pyx.
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from gossipkv.loadtest._dialect cimport Reply, Slot, Window

cdef class Ledger:
    cdef list tallies  # of each stage those of each target; the owners of `tally_of`
    cdef list versions  # of each target
    cdef PyObject** tally_of
    cdef PyObject** versions_of
    cdef uint32_t stages
    cdef uint32_t targets

    cdef PyObject* at(self, uint32_t stage, uint32_t target) noexcept nogil
    cdef uint64_t ended(self) noexcept
    cdef int32_t newest_version(self, uint32_t target) noexcept nogil
    cdef void count_sent(self, uint32_t stage, uint32_t target, int64_t late_ns) noexcept nogil
    cdef void count_bytes(self, uint32_t stage, uint32_t target, Py_ssize_t sent, Py_ssize_t received) noexcept nogil
    cdef void count_reconnect(self, uint32_t stage, uint32_t target) noexcept nogil
    cdef void count_broken(self, uint32_t stage, uint32_t target, int reason, const Window* window) noexcept nogil
    cdef void count(self, uint32_t target, const Slot* slot, const Reply* reply, int64_t now) noexcept nogil

"""Reads of calm replicas of tables; `table_gets.pyx` explains the design."""

from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from gossipkv.storage.engine._engine cimport PendingLookup, ReadGate, View, view_within
from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport Blob, Cursor

cdef struct TableOptions:
    Blob token  # of size 0 if none is given
    uint64_t config  # 0 if it is not given
    bint explain

cdef struct TableGet:
    PyObject* table  # a `CalmTable`, borrowed from the published table
    PyObject* replica  # its `CalmReplica` of the key, valid within the gate; NULL if Python must answer
    TableOptions options
    Blob key
    PendingLookup pending


cdef PyObject* plan_table_read(
    PublishedTable published, Cursor* params, Blob* key, TableOptions* options, bint many
) noexcept nogil
cdef int begin_table_get(
    PublishedTable published, Cursor params, const ReadLimits* limits, TableGet* get
) noexcept nogil
cdef bint find_replica(TableGet* get, View view) noexcept nogil
cdef int end_table_get(
    TableGet* get, View view, uint32_t msgid, const ReadLimits* limits, const Blob* node, Buffer* out
) noexcept nogil
cdef int read_table_keys(
    PublishedTable published, Cursor params, uint32_t msgid, const ReadLimits* limits, TableGet* window, int loop,
    Py_ssize_t* count, Buffer* out
) noexcept nogil


cdef inline PyObject* view_of(PublishedTable published, int loop) noexcept nogil:
    """Return the `View` of a loop; NULL while the store is closed. Requires: the loop is within the gate."""
    return view_within(<ReadGate>published.gate, loop)

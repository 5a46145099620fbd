"""The plan of a scan; `plan.pyx` explains the design."""

from gossipkv.wire._buffer cimport Buffer
from gossipkv.wire._wire cimport Blob, Cursor

cdef enum:
    CURSOR_CHECKSUM_BYTES = 4

cdef struct ScanPlan:
    Blob database
    VersionRow* version
    bint by_name
    KeyRange range
    Py_ssize_t limit


cdef int make_plan(
    PublishedTable table, Cursor params, const ReadLimits* limits, Py_ssize_t scan_limit, Buffer* bounds, ScanPlan* plan
) noexcept nogil

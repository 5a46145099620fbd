"""The session of a RESP connection; `session.pyx` explains the design."""

from libc.stdint cimport uint8_t
from libc.string cimport memcmp

from gossipkv.replication._replication cimport CalmReplica, CalmTable
from gossipkv.wire._buffer cimport buffer_size
from gossipkv.wire._wire cimport Blob, Cursor


cdef int note_new_token(RespState* resp, const PendingReply* reply, const Blob* token) noexcept nogil
cdef int note_result(RespState* resp, const PendingReply* reply, Cursor result) noexcept nogil
cdef void forget_session(RespState* resp) noexcept nogil
cdef Py_ssize_t shown_bytes(Core core, RespState* resp, const Blob* database) noexcept nogil
cdef void put_shown(RespState* resp, Py_ssize_t size, Buffer* out) noexcept nogil
cdef bint covers_session(
    Core core, const BacklogRequest* request, CalmTable table, CalmReplica replica
) noexcept nogil
cdef bytes params_to_ask(Core core, BacklogRequest* request)


cdef inline int note_token(RespState* resp, const PendingReply* reply, const Blob* token) noexcept nogil:
    """Let the session see what the answer to a request has shown; -1 if it cannot be kept."""
    if (
        not reply.is_shown and token.size == resp.settled_size
        and memcmp(token.data, resp.settled, <size_t>token.size) == 0
    ):
        return 0
    return note_new_token(resp, reply, token)


cdef inline void note_shown(const RespState* resp, PendingReply* reply) noexcept nogil:
    """Note in the pending reply what its request has shown of the session."""
    reply.is_shown = buffer_size(&resp.replies.seen) > 0 and resp.is_shown
    if reply.is_shown:
        reply.shown_table = resp.shown_table
        reply.era = resp.era
        reply.shown_end = buffer_size(&resp.replies.seen)

"""Requests of Python to other nodes, for example for the partitions that a peer serves, or for a register's value.

A request goes to one peer and waits for the answer, the deadline, or the end of the connection. The outcome is kept
until Python takes it.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint16_t, uint64_t
from libc.string cimport memset

from gossipkv.wire._buffer cimport buffer_append, buffer_reserve, buffer_size
from gossipkv.wire._wire cimport HEAD_BYTES, Blob, Cursor, put_bytes, put_request, put_text

cdef struct PeerRequest:
    Relay head
    uint64_t token  # names the request to Python
    bint refused  # the answer is an error
    bint answered


cdef ask_peer(RelayDriver driver, int column, bytes method, bytes params, int64_t timeout_ms):
    """Send a request to a peer. Return the token for `take_replies`, or 0 if the peer cannot be asked now."""
    cdef Connection* connection
    cdef Attempt* attempt
    cdef PeerRequest* question
    cdef Py_ssize_t method_size = len(method)
    cdef Py_ssize_t size = method_size + len(params) + 4 * HEAD_BYTES
    cdef Py_ssize_t before
    driver.peers.routes.peer(column)
    connection = driver.peers.connection_of(column)
    if connection == NULL:
        driver.peers.want(column)
        return 0
    if buffer_size(&connection.output) >= driver.connections.max_queued or not may_hold(driver.connections, size):
        return 0
    if not 0 < method_size < 256:
        raise ValueError(f"the name of a method must have from 1 to 255 bytes, not {method_size}")
    question = <PeerRequest*>relay_begin(driver.relays, PEER_REQUEST, NULL)
    if question == NULL or buffer_reserve(&connection.output, size) < 0:
        raise MemoryError
    attempt = attempt_begin(
        driver.relays, &question.head, &connection.attempts, connection.handle, <uint16_t>column
    )
    if attempt == NULL:
        relay_end(driver.relays, &question.head)
        return 0
    before = connection.output.end
    put_request(&connection.output, attempt.id)
    put_text(&connection.output, method)
    put_bytes(&connection.output, params, len(params))
    driver.connections.note_output(connection, connection.output.end - before)
    driver.last_token += 1
    question.token = driver.last_token
    set_due(driver.relays, &question.head, driver.connections.now_ns + timeout_ms * 1000000)
    return question.token


cdef list take_replies(RelayDriver driver):
    """Return the replies since the last call as `(token, result or None, error or None)`; both None if lost."""
    cdef list taken = []
    cdef PeerRequest* question
    cdef bytes body
    while driver.relays.first_reply != NULL:
        question = <PeerRequest*>driver.relays.first_reply
        driver.relays.first_reply = question.head.next
        body = None
        if question.answered:
            body = PyBytes_FromStringAndSize(<const char*>question.head.body.data, question.head.body.end)
        taken.append((question.token, None if question.refused else body, body if question.refused else None))
        relay_end(driver.relays, &question.head)
    driver.relays.last_reply = NULL
    return taken


cdef void keep_reply(RelayDriver driver, Relay* relay, const Cursor* answer, bint refused) noexcept nogil:
    """Keep the peer's answer for Python."""
    relay.body.start = 0
    relay.body.end = 0
    (<PeerRequest*>relay).refused = refused
    (<PeerRequest*>relay).answered = buffer_append(&relay.body, answer.at, answer.end - answer.at) == 0
    relay_reply(driver.relays, relay)


cdef void keep_no_reply(RelayDriver driver, Relay* relay) noexcept nogil:
    relay_reply(driver.relays, relay)


cdef bint is_anything(const Relay* relay, Cursor result) noexcept nogil:
    return True  # Python judges the result.


cdef void take_result(RelayDriver driver, Relay* relay, Cursor result, int column) noexcept nogil:
    keep_reply(driver, relay, &result, False)


cdef void take_refusal(
    RelayDriver driver, Relay* relay, const Blob* code, const Cursor* error, int column
) noexcept nogil:
    keep_reply(driver, relay, error, True)


cdef WaitReason reply_reason() noexcept nogil:
    """Return the steps of a request of Python."""
    cdef WaitReason reason
    memset(&reason, 0, sizeof(WaitReason))
    reason.body.size = sizeof(PeerRequest)
    reason.go_on = keep_no_reply
    reason.expire = keep_no_reply
    reason.is_answer = is_anything
    reason.take = take_result
    reason.refuse = take_refusal
    return reason

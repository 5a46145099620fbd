"""Answers of other nodes: each frame is compared with the request on that connection.

An answer must have the id of an attempt on that connection, and the shape and version that were asked for. A peer that
sends anything else loses its connection, and all relays that wait on it continue at once.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from gossipkv.wire._buffer cimport Buffer, buffer_drop, buffer_size
from gossipkv.wire._wire cimport (
    FRAME_COMPLETE, FRAME_PARTIAL, Blob, Cursor, FrameLimits, FrameState, frame_begin, frame_scan, take_array, take_map,
    take_nil, take_response, take_str,
)


cdef void receive_answers(RelayDriver driver, Connection* peer, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Process bytes that arrived from a peer.

    Kept input is detached while it is read: making room for an answer may free what a connection holds, even this
    one's.
    """
    cdef Buffer kept
    cdef Py_ssize_t consumed
    driver.counts[BYTES_RECEIVED] += <uint64_t>size
    peer.active_ms = driver.connections.now_ms
    peer.received_ns = driver.connections.now_ns
    if buffer_size(&peer.input) == 0:
        consumed = consume_answers(driver, peer, data, size)
        if consumed < size and not peer.doomed:
            driver.connections.hold_input(peer, data + consumed, size - consumed)
    elif driver.connections.hold_input(peer, data, size) == 0:
        kept = driver.connections.take_input(peer)
        consumed = consume_answers(driver, peer, kept.data + kept.start, buffer_size(&kept))
        buffer_drop(&kept, consumed)
        driver.connections.put_input_back(peer, &kept)
    else:
        return
    if buffer_size(&peer.input) == 0:
        peer.partial_ms = 0
    elif consumed > 0 or peer.partial_ms == 0:
        peer.partial_ms = driver.connections.now_ms


cdef Py_ssize_t consume_answers(
    RelayDriver driver, Connection* peer, const uint8_t* data, Py_ssize_t size
) noexcept nogil:
    """Process answer after answer. Return how many bytes they had."""
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t length
    cdef int result
    while at < size and not peer.doomed:
        result = frame_scan(&peer.scan, data + at, size - at, &driver.frame_limits)
        if result == FRAME_PARTIAL:
            break
        if result != FRAME_COMPLETE:
            driver.counts[frame_fault(result)] += 1
            driver.connections.doom(peer, CLOSED_BAD_FRAME)
            break
        length = peer.scan.position
        frame_begin(&peer.scan)
        take_answer(driver, peer, data + at, length)
        at += length
    return at


cdef void take_answer(RelayDriver driver, Connection* peer, const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Process one whole frame, if it answers a request on that connection."""
    cdef Cursor body = Cursor(data, data + size)
    cdef Cursor error
    cdef Attempt* attempt
    cdef Relay* relay
    cdef const WaitReason* reason
    cdef uint32_t id = 0
    cdef Blob code
    cdef bint refused
    if not take_response(&body, &id):
        driver.connections.doom(peer, CLOSED_BAD_MESSAGE)
        return
    attempt = attempt_find(driver.relays, id, peer.handle)
    if attempt == NULL:
        driver.connections.doom(peer, CLOSED_UNASKED_RESPONSE)
        return
    driver.counts[FORWARD_ANSWERS] += 1
    driver.peers.routes.peers[attempt.column].slow = False
    refused = not take_nil(&body)
    if refused and not take_failure(body, &driver.frame_limits, &code, &error):
        driver.connections.doom(peer, CLOSED_BAD_ANSWER)
        return
    relay = attempt.relay
    reason = &driver.reasons[<int>relay.kind] if relay != NULL else NULL
    if relay == NULL:
        driver.counts[FORWARD_ANSWERS_LATE] += 1
        attempt_end(driver.relays, attempt)
    elif refused:
        attempt_end(driver.relays, attempt)
        reason.refuse(driver, relay, &code, &error, peer.column)
    elif reason.is_answer(relay, body):
        attempt_end(driver.relays, attempt)
        reason.take(driver, relay, body, peer.column)
    else:
        relay_note(relay, attempt.column, SAID_NONSENSE)
        relay_stir(driver.relays, relay)
        attempt_end(driver.relays, attempt)
        driver.connections.doom(peer, CLOSED_BAD_ANSWER)


cdef bint take_failure(Cursor body, const FrameLimits* limits, Blob* code, Cursor* error) noexcept nogil:
    """Parse `[code, message, details]` followed by a nil result. Return False for any other shape."""
    cdef FrameState scan
    cdef Cursor inner
    cdef Blob message
    frame_begin(&scan)
    if frame_scan(&scan, body.at, body.end - body.at, limits) != FRAME_COMPLETE:
        return False
    error[0] = Cursor(body.at, body.at + scan.position)
    body.at = error.end
    if not take_nil(&body) or body.at != body.end:
        return False
    inner = error[0]
    return (
        take_array(&inner) == 3
        and take_str(&inner, code)
        and take_str(&inner, &message)
        and take_map(&inner) >= 0
    )

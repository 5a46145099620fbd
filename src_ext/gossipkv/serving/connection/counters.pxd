"""The counters of a core, and their names in `info`."""

from libc.stdint cimport uint64_t

from gossipkv.wire._wire cimport FRAME_TOO_DEEP, FRAME_TOO_LARGE, FRAME_TOO_MANY

cdef enum:
    CONNECTIONS_ACCEPTED
    CONNECTIONS_REFUSED
    CONNECTIONS_REFUSED_BY_ADDRESS
    ACCEPT_PAUSES
    BUSY_POLLS
    BUSY_POLL_HITS
    BYTES_RECEIVED
    BYTES_SENT
    PINGS
    GETS
    GET_MANYS
    KEYS_READ
    HANDED_OFF
    REPLIES
    REPLIES_DROPPED
    REPLIES_TOO_LARGE
    NOTIFICATIONS_IGNORED
    DUPLICATE_IDS
    BAD_REQUESTS
    PAUSED_FOR_OUTPUT
    PAUSED_FOR_HAND_OFFS
    OVERLOADED
    FRAMES_TOO_LARGE
    FRAMES_TOO_DEEP
    FRAMES_TOO_MANY_ELEMENTS
    FRAMES_MALFORMED
    CLOSED_BY_PEER
    CLOSED_AS_ASKED
    CLOSED_RESET
    CLOSED_BAD_FRAME
    CLOSED_BAD_MESSAGE
    CLOSED_UNASKED_RESPONSE
    CLOSED_FRAME_TIMEOUT
    CLOSED_OUTPUT_TIMEOUT
    CLOSED_IDLE
    CLOSED_MEMORY
    CLOSED_DRAINED
    CLOSED_CUT
    CLOSED_BAD_ANSWER
    CLOSED_ABANDONED
    CLOSED_UNAUTHORIZED
    CLOSED_DETACHED
    CLOSED_HANDSHAKE
    CLOSED_UNPROVEN
    FORWARDED
    FORWARD_ATTEMPTS
    FORWARD_ANSWERS
    FORWARD_ANSWERS_LATE
    FORWARD_SILENCES
    FORWARD_ROUNDS
    FORWARD_UNCONNECTED
    FORWARD_QUEUE_FULL
    FORWARD_NOT_SERVED
    FORWARD_NOT_READY
    FORWARD_UNKNOWN_VERSION
    FORWARD_CORRUPT
    FORWARD_OVERLOADED
    FORWARD_REFUSED
    FORWARD_FAILED
    COLD_READS
    COLD_PAGES
    COLD_PAGES_FAILED
    COLD_REFUSED
    TLS_HANDSHAKES
    TLS_RESUMED
    COUNTERS


cdef inline int frame_fault(int result) noexcept nogil:
    """Return the counter for a frame that the scanner has refused."""
    if result == FRAME_TOO_LARGE:
        return FRAMES_TOO_LARGE
    if result == FRAME_TOO_DEEP:
        return FRAMES_TOO_DEEP
    return FRAMES_TOO_MANY_ELEMENTS if result == FRAME_TOO_MANY else FRAMES_MALFORMED


cdef inline list counter_names():
    """Return the names of the counters, in the order of the list above."""
    return """
        connections_accepted connections_refused connections_refused_by_address accept_pauses
        busy_polls busy_poll_hits bytes_received bytes_sent pings gets get_manys keys_read handed_off
        replies replies_dropped replies_too_large notifications_ignored duplicate_ids bad_requests
        paused_for_output paused_for_hand_offs overloaded
        frames_too_large frames_too_deep frames_too_many_elements frames_malformed
        closed_by_peer closed_as_asked closed_reset closed_bad_frame closed_bad_message closed_unasked_response
        closed_frame_timeout closed_output_timeout closed_idle closed_memory closed_drained closed_cut
        closed_bad_answer closed_abandoned closed_unauthorized closed_detached closed_handshake
        closed_unproven
        forwarded forward_attempts forward_answers forward_answers_late forward_silences forward_rounds
        forward_unconnected forward_queue_full forward_not_served forward_not_ready forward_unknown_version
        forward_corrupt forward_overloaded forward_refused forward_failed
        cold_reads cold_pages cold_pages_failed cold_refused
        tls_handshakes tls_resumed
    """.split()


cdef inline str counter_name(int counter):
    return counter_names()[counter]


cdef inline dict counters_by_name(const uint64_t* counts):
    return {name: counts[i] for i, name in enumerate(counter_names())}

"""MessagePack's heads, and the scanner that walks them: its state and its inlined function.

The invariant: after `FRAME_COMPLETE`, the first `state.position` bytes are exactly one MessagePack value within every
limit, so a reader of those bytes needs no other bound than their end.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef extern from *:
    """
    #define GKV_FRAME_STACK 32

    /* Heads 0xc0 to 0xdf: what they are (high half) and how many bytes follow (low half): the body's own size
       for a scalar, the size of the length field for everything else. */
    #define GKV_SCALAR 0x00
    #define GKV_BYTES 0x10
    #define GKV_ARRAY 0x20
    #define GKV_MAP 0x30
    #define GKV_EXTENSION 0x40
    #define GKV_RESERVED 0x50
    static const unsigned char gkv_heads[32] = {
        0x00, 0x50, 0x00, 0x00, 0x11, 0x12, 0x14, 0x40, 0x40, 0x40, 0x04, 0x08, 0x01, 0x02, 0x04, 0x08,
        0x01, 0x02, 0x04, 0x08, 0x40, 0x40, 0x40, 0x40, 0x40, 0x11, 0x12, 0x14, 0x22, 0x24, 0x32, 0x34};
    """
    enum: GKV_FRAME_STACK
    enum: GKV_SCALAR
    enum: GKV_BYTES
    enum: GKV_ARRAY
    enum: GKV_MAP
    enum: GKV_EXTENSION
    enum: GKV_RESERVED
    const uint8_t gkv_heads[32]

cdef enum:
    # The first byte of a value. Below FIX_MAP, and from NEGATIVE on, it is a small number itself; in the next three
    # forms its low bits are the length. Behind BIN_8 follow the heads of 16 and 32 bits, and so on in each family.
    FIX_MAP = 0x80
    FIX_ARRAY = 0x90
    FIX_STR = 0xA0
    NIL = 0xC0
    FALSE = 0xC2
    TRUE = 0xC3
    BIN_8 = 0xC4
    UINT_8 = 0xCC
    INT_8 = 0xD0
    STR_8 = 0xD9
    ARRAY_16 = 0xDC
    MAP_16 = 0xDE
    NEGATIVE = 0xE0

cdef enum:
    # Requests need 4 levels, and the deepest answer (status) 9; the scanner's stack has room for these.
    FRAME_DEPTH = GKV_FRAME_STACK
    # A decoded element costs up to 64 bytes in Python, so 8 MiB per frame; a page of a scan has 30,000.
    FRAME_ELEMENTS = 131072
    # Twice the largest value, 16 MiB: the default of `max_frame`.
    FRAME_BYTES = 32 * 1024 * 1024

cdef enum FrameResult:
    FRAME_TOO_LARGE = -5  # the value does not end within the limit
    FRAME_TOO_MANY = -4  # more elements than the limit
    FRAME_TOO_DEEP = -3  # containers within containers beyond the limit
    FRAME_EXTENSION = -2  # an extension type, which is not supported
    FRAME_RESERVED = -1  # 0xc1, which MessagePack never uses
    FRAME_PARTIAL = 0
    FRAME_COMPLETE = 1

cdef struct FrameLimits:
    Py_ssize_t max_size
    Py_ssize_t max_elements
    int max_depth  # at most GKV_FRAME_STACK

cdef struct FrameState:
    Py_ssize_t position  # offset of the next head; beyond the data if a body is incomplete
    Py_ssize_t elements  # declared so far, including those not yet received
    int depth
    bint closed  # every head was read; complete once `position` bytes are here
    uint32_t missing[GKV_FRAME_STACK]  # elements that each open container still lacks, outermost first


cdef inline void frame_begin(FrameState* state) noexcept nogil:
    """Expect the first byte of a value."""
    state.position = 0
    state.elements = 0
    state.depth = 0
    state.closed = False


cdef inline uint32_t big_endian_word(const uint8_t* data) noexcept nogil:
    return (<uint32_t>data[0] << 24) | (<uint32_t>data[1] << 16) | (<uint32_t>data[2] << 8) | data[3]


cdef inline uint64_t big_endian(const uint8_t* data, int width) noexcept nogil:
    """Return a number of 1, 2, 4 or 8 bytes."""
    if width == 1:
        return data[0]
    if width == 2:
        return (<uint64_t>data[0] << 8) | data[1]
    if width == 4:
        return big_endian_word(data)
    return (<uint64_t>big_endian_word(data) << 32) | big_endian_word(data + 4)


cdef inline int frame_head(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t room, Py_ssize_t* length, Py_ssize_t* children
) noexcept nogil:
    """Read the head at `data`, of which `size` bytes (at least 1) are here and `room` are allowed.

    `length` is set to the value's own bytes, including its body; `children` to a container's elements, else -1.
    """
    cdef uint8_t head = data[0]
    cdef int kind
    cdef int width
    children[0] = -1
    length[0] = 1
    if head < FIX_MAP or head >= NEGATIVE:
        return FRAME_COMPLETE
    if head < FIX_ARRAY:
        children[0] = 2 * (head & 0x0F)
        return FRAME_COMPLETE
    if head < FIX_STR:
        children[0] = head & 0x0F
        return FRAME_COMPLETE
    if head < NIL:
        length[0] += head & 0x1F
        return FRAME_COMPLETE
    kind = gkv_heads[head - NIL] & 0xF0
    width = gkv_heads[head - NIL] & 0x0F
    if kind == GKV_EXTENSION:
        return FRAME_EXTENSION
    if kind == GKV_RESERVED:
        return FRAME_RESERVED
    length[0] += width
    if kind == GKV_SCALAR:
        return FRAME_COMPLETE
    if length[0] > room:
        return FRAME_TOO_LARGE
    if length[0] > size:
        return FRAME_PARTIAL
    if kind == GKV_BYTES:
        length[0] += <Py_ssize_t>big_endian(data + 1, width)
    else:
        children[0] = <Py_ssize_t>big_endian(data + 1, width) * (1 if kind == GKV_ARRAY else 2)
    return FRAME_COMPLETE


cdef inline void frame_close(FrameState* state) noexcept nogil:
    """End a value, and all containers whose last element it was."""
    while state.depth > 0:
        state.missing[state.depth - 1] -= 1
        if state.missing[state.depth - 1] > 0:
            return
        state.depth -= 1
    state.closed = True


cdef inline int frame_scan(
    FrameState* state, const uint8_t* data, Py_ssize_t size, const FrameLimits* limits
) noexcept nogil:
    """Continue where the last call stopped; `data` begins with the value, and `size` bytes have arrived.

    Each head is read at most twice, however the bytes arrive, so a frame takes time linear in its length. On
    `FRAME_COMPLETE` `state.position` is the length; on an error it is the offset of the refused head.
    """
    cdef Py_ssize_t length
    cdef Py_ssize_t children
    cdef Py_ssize_t room
    cdef int result
    while not state.closed:
        room = limits.max_size - state.position
        if room <= 0:
            return FRAME_TOO_LARGE
        if state.position >= size:
            return FRAME_PARTIAL
        result = frame_head(data + state.position, size - state.position, room, &length, &children)
        if result != FRAME_COMPLETE:
            return result
        if length > room:
            return FRAME_TOO_LARGE
        if children >= 0:
            if state.depth >= limits.max_depth:
                return FRAME_TOO_DEEP
            if children > limits.max_elements - state.elements:
                return FRAME_TOO_MANY
            state.elements += children
        state.position += length
        if children > 0:
            state.missing[state.depth] = <uint32_t>children
            state.depth += 1
        else:
            frame_close(state)
    return FRAME_COMPLETE if state.position <= size else FRAME_PARTIAL

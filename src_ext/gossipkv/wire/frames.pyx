"""The bounding scanner, which walks all input of peers before anything is decoded.

It finds the end of a MessagePack value. At the first head that proves it, it refuses a value that is too long or too
deep, has too many elements, or uses extension types or the reserved byte. It allocates and decodes nothing: an untyped
decode of 10 MB of empty arrays costs 690 MB, the scanner a state of 160 bytes.

The state resumes at any byte, so even a peer that sends single bytes costs linear time in total.

`tests/oracle/msgpack_scanner.py` does the same in plain Python, in one slow pass, and the tests compare both.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from gossipkv.errors import ProtocolError

MAX_DEPTH = FRAME_DEPTH
MAX_ELEMENTS = FRAME_ELEMENTS
MAX_FRAME_BYTES = FRAME_BYTES

cdef dict REASONS = {
    FRAME_TOO_LARGE: ("size", "the value does not end within the limit of {max_size} bytes"),
    FRAME_TOO_MANY: ("elements", "more than {max_elements} elements"),
    FRAME_TOO_DEEP: ("depth", "containers nested more than {max_depth} deep"),
    FRAME_EXTENSION: ("extension", "extension types are not allowed"),
    FRAME_RESERVED: ("reserved", "the byte 0xc1 is not part of MessagePack"),
}


def refusal(int result, offset, dict limits):
    """Return the error for a negative scanner result; `offset` is that of the refused head in the stream."""
    reason, text = REASONS[result]
    message = f"a message is refused at byte {offset} of the stream: {text.format(**limits)}"
    return ProtocolError(message, {"reason": reason, "offset": offset})


@cython.final
cdef class FrameReader:
    """Cuts a byte stream into whole, bounded MessagePack values.

    Feed received bytes, then take values until there is none. After an error the stream has no known boundary, so every
    later call raises the same error.
    """

    cdef bytearray buffer
    cdef Py_ssize_t start  # start of the scanned value in `buffer`
    cdef object offset  # its offset in the stream
    cdef FrameState state
    cdef FrameLimits limits
    cdef object failure

    def __cinit__(
        self,
        Py_ssize_t max_frame=MAX_FRAME_BYTES,
        *,
        int max_depth=MAX_DEPTH,
        Py_ssize_t max_elements=MAX_ELEMENTS,
    ):
        if max_frame < 1 or max_elements < 0 or not 0 <= max_depth <= GKV_FRAME_STACK:
            raise ValueError(
                f"limits out of range: max_frame={max_frame}, max_depth={max_depth} (at most {GKV_FRAME_STACK}), "
                f"max_elements={max_elements}"
            )
        self.buffer = bytearray()
        self.start = 0
        self.offset = 0
        self.limits = FrameLimits(max_size=max_frame, max_elements=max_elements, max_depth=max_depth)
        self.failure = None
        frame_begin(&self.state)

    @property
    def pending_bytes(self):
        """Bytes fed and not yet returned; at the end of a stream, a value above 0 means that it was cut."""
        return PyByteArray_GET_SIZE(self.buffer) - self.start

    def feed(self, data):
        """Add received bytes. Never raises for their content; `next` does."""
        if self.start:
            del self.buffer[:self.start]
            self.start = 0
        self.buffer += data

    def next(self):
        """Return the next whole value, or None if more bytes are needed.

        Raises:
            ProtocolError: the stream is not MessagePack within the limits; `details` has `reason` and `offset`.
        """
        if self.failure is not None:
            raise self.failure
        cdef Py_ssize_t size = PyByteArray_GET_SIZE(self.buffer) - self.start
        cdef const char* data = PyByteArray_AS_STRING(self.buffer) + self.start
        cdef int result = frame_scan(&self.state, <const uint8_t*>data, size, &self.limits)
        if result == FRAME_PARTIAL:
            return None
        if result < 0:
            self.failure = refusal(result, self.offset + self.state.position, self.limits)
            raise self.failure
        assert self.state.depth == 0 and self.state.position <= size, "a value is whole"
        frame = PyBytes_FromStringAndSize(data, self.state.position)
        self.start += self.state.position
        self.offset += self.state.position
        frame_begin(&self.state)
        return frame

    def __iter__(self):
        return self

    def __next__(self):
        frame = self.next()
        if frame is None:
            raise StopIteration
        return frame


def check_value(bytes data not None, *, Py_ssize_t max_elements, int max_depth=MAX_DEPTH):
    """Raise ProtocolError unless the data is exactly one value within these limits."""
    cdef FrameState state
    cdef Py_ssize_t size = PyBytes_GET_SIZE(data)
    cdef FrameLimits limits = FrameLimits(max_size=size, max_elements=max_elements, max_depth=max_depth)
    cdef int result
    frame_begin(&state)
    result = frame_scan(&state, <const uint8_t*>PyBytes_AS_STRING(data), size, &limits)
    if result < 0:
        raise refusal(result, state.position, limits)
    if result == FRAME_PARTIAL or state.position < size:
        raise ProtocolError("a value is cut, or bytes follow it", {"reason": "size", "offset": state.position})

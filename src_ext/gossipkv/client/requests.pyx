"""Requests, which outlive their connections, and a heap of their deadlines.

A request becomes done once: with a result, with an error, or because its task no longer waits.  Only a request whose
data the node still builds is asked again (`patience`), by reopening it.

`get` and `get_many` are written straight into a session's buffer.  Every other method is
encoded when the request is made, so that values that MessagePack cannot encode are found before anything is sent.

The heap is intrusive: a request knows its index, so it leaves the heap as soon as it is answered and is not held any
longer.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from libc.math cimport INFINITY
from libc.stdint cimport uint8_t

from gossipkv.wire._buffer cimport Buffer, buffer_init, buffer_release, buffer_reserve, buffer_size
from gossipkv.wire._wire cimport HEAD_BYTES, put_bin

from types import GenericAlias

import msgpack

from gossipkv.client import reads
from gossipkv.errors import BadRequest, TooLarge

cdef enum:
    FIXED_BYTES = 32  # of a frame without the database, the keys and the options

cdef Py_ssize_t MAX_BYTES = 17 * 1024 * 1024  # A node's default `max_frame`: a longer request would end the connection.


cdef class Deadlines


@cython.final
@cython.freelist(256)
cdef class Request:
    """A request to a node, and later its answer; `reads` and the shells make requests through the functions below.

    `owner` is woken when the request is done; `at` is the address of the only node to ask, or None; `history` is the
    dispatcher's record of earlier attempts; `is_inner`: the dispatcher itself waits for it.
    """

    __class_getitem__ = classmethod(GenericAlias)  # The parameter is the type of the result.

    def __cinit__(self):
        self.place = -1

    def __init__(self):
        raise TypeError("Request has no constructor; call get_request, get_many_request, page_request or call_request")

    def __repr__(self):
        return f"<{self.method} request, {'done' if self.is_done else 'open'}>"

    def keys(self):
        """Return the keys of a `get_many`."""
        unpacker = msgpack.Unpacker()
        unpacker.feed(self.subject)
        return [*unpacker]

    def take(self):
        """Return the result; raise the error if there is one."""
        if self.error is not None:
            raise self.error
        return self.result

    def fail(self, error):
        """Finish with this error, or with None because no task waits; a late answer is dropped."""
        if self.session is not None:
            self.session.withdraw(self)
        if not self.is_done:
            self.finish(None, error)

    def reopen(self):
        """Reopen a finished request, to ask it once more within its deadline."""
        assert self.is_done, "only what is done is asked again"
        assert self.session is None and self.deadlines is None, "what is done is nowhere"
        self.is_done = False
        self.result = self.error = self.history = None

    def settle(self, result):
        """Finish with the result of another request that asks the same; a late answer is dropped."""
        if self.session is not None:
            self.session.withdraw(self)
        self.finish(result, None)

    def twin(self):
        """Return another request that asks the same."""
        cdef Request twin = Request.__new__(Request)
        twin.method = self.method
        twin.kind = self.kind
        twin.is_repeatable = self.is_repeatable
        twin.is_inner = True
        twin.head = self.head
        twin.subject = self.subject
        twin.count = self.count
        twin.options = self.options
        twin.size_bytes = self.size_bytes
        return twin

    cdef int finish(self, object result, object error) except -1:
        assert not self.is_done, "a request becomes done once"
        self.is_done = True
        self.session = None
        self.result = result
        self.error = error
        if self.deadlines is not None:
            (<Deadlines>self.deadlines).drop(self)
        return 0


cdef inline object as_key(object key):
    """Return the key as it is sent; `bytes` are not copied, unlike those of a subclass, such as NumPy's."""
    return key if PyBytes_CheckExact(key) else reads.key_bytes(key)


cdef int bound(Request request) except -1:
    """Refuse a request that is larger than a frame."""
    if request.size_bytes > MAX_BYTES:
        raise TooLarge(
            f"{request.method}: the request has {request.size_bytes} bytes; a node takes at most {MAX_BYTES} bytes",
            {"limit": MAX_BYTES, "size": request.size_bytes},
        )
    return 0


def get_request(bytes database not None, key, bytes options=None):
    """Return a `get`; `database` and `options` (a map) are MessagePack already.

    Raises:
        BadRequest, TypeError: the key is not valid.
        TooLarge: the request is larger than a frame.
    """
    cdef Request request = Request.__new__(Request)
    request.method = "get"
    request.kind = REQUEST_GET
    request.is_repeatable = True
    request.head = database
    request.subject = as_key(key)
    request.options = options
    request.size_bytes = FIXED_BYTES + PyBytes_GET_SIZE(database) + PyBytes_GET_SIZE(request.subject)
    if options is not None:
        request.size_bytes += PyBytes_GET_SIZE(options)
    bound(request)
    return request


def get_many_request(bytes database not None, keys, bytes options=None, *, bint columns=False):
    """Return a `get_many`, whose result has a list or, with `columns`, a column; see `get_request`."""
    cdef Request request = Request.__new__(Request)
    cdef Buffer encoded
    buffer_init(&encoded)
    try:
        for key in keys:
            key = as_key(key)
            if buffer_reserve(&encoded, HEAD_BYTES + PyBytes_GET_SIZE(key)) < 0:
                raise MemoryError
            put_bin(&encoded, <const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
            request.count += 1
        request.subject = PyBytes_FromStringAndSize(<const char*>encoded.data, buffer_size(&encoded))
    finally:
        buffer_release(&encoded)
    request.method = "get_many"
    request.kind = REQUEST_COLUMN if columns else REQUEST_GET_MANY
    request.is_repeatable = True
    request.head = database
    request.options = options
    request.size_bytes = FIXED_BYTES + PyBytes_GET_SIZE(database) + PyBytes_GET_SIZE(request.subject)
    if options is not None:
        request.size_bytes += PyBytes_GET_SIZE(options)
    bound(request)
    return request


def call_request(str method not None, params):
    """Return a request of any method; `params` is a sequence.

    Raises:
        BadRequest: MessagePack cannot encode a parameter's type, or a number of its size.
        TooLarge: the request is larger than a frame.
    """
    cdef Request request = Request.__new__(Request)
    request.method = method
    request.kind = REQUEST_OTHER
    request.is_repeatable = method in reads.REPEATABLE
    try:
        request.head = msgpack.packb(method) + msgpack.packb(params)
    except (TypeError, ValueError, OverflowError) as error:
        raise BadRequest(f"{method}: the parameters cannot be encoded: {error}") from error
    request.size_bytes = FIXED_BYTES + PyBytes_GET_SIZE(request.head)
    bound(request)
    return request


def page_request(params):
    """Return a `scan` whose result has the records of the page as columns.  Raises as `call_request`."""
    cdef Request request = call_request("scan", params)
    request.kind = REQUEST_PAGE
    return request


@cython.final
cdef class Deadlines:
    """Requests by their deadline.  A request that is done leaves by itself."""

    cdef list heap

    def __cinit__(self):
        self.heap = []

    def __len__(self):
        return PyList_GET_SIZE(self.heap)

    @property
    def next(self):
        """The earliest deadline; infinity if there is none."""
        if not self.heap:
            return INFINITY
        return (<Request>self.heap[0]).due

    def add(self, Request request not None, double due):
        """Add `request`, which is in no heap and not done, with this deadline."""
        if request.deadlines is not None or request.is_done:
            raise ValueError("the request is done or already has a deadline")
        request.deadlines = self
        request.due = due
        self.heap.append(request)
        self.settle(request, PyList_GET_SIZE(self.heap) - 1)

    def move(self, Request request not None, double due):
        """Change the deadline of a request of this heap."""
        assert request.deadlines is self, "it has a deadline here"
        self.drop(request)
        self.add(request, due)

    def expired(self, double now):
        """Remove and return the requests that were due by `now`, in order."""
        due = []
        while self.heap:
            request = <Request>self.heap[0]
            if (<Request>request).due > now:
                break
            self.drop(<Request>request)
            due.append(request)
        return due

    cdef int drop(self, Request request) except -1:
        """Remove `request`; the last request fills its place and is moved into order."""
        cdef Py_ssize_t place = request.place
        assert self.heap[place] is request, "a request knows its place in the heap"
        last = <Request>self.heap.pop()
        request.deadlines = None
        request.place = -1
        if last is not request:
            self.settle(<Request>last, place)
        return 0

    cdef int settle(self, Request request, Py_ssize_t place) except -1:
        """Put `request` at the free index `place`, or at the index from there that keeps the order."""
        cdef Py_ssize_t size = PyList_GET_SIZE(self.heap)
        cdef Py_ssize_t child
        cdef Request other
        while place > 0:
            other = <Request>self.heap[(place - 1) >> 1]
            if other.due <= request.due:
                break
            self.heap[place] = other
            other.place = place
            place = (place - 1) >> 1
        while True:
            child = 2 * place + 1
            if child >= size:
                break
            if child + 1 < size and (<Request>self.heap[child + 1]).due < (<Request>self.heap[child]).due:
                child += 1
            other = <Request>self.heap[child]
            if request.due <= other.due:
                break
            self.heap[place] = other
            other.place = place
            place = child
        self.heap[place] = request
        request.place = place
        assert place == 0 or (<Request>self.heap[(place - 1) >> 1]).due <= request.due, "none is due before its parent"
        return 0

"""The core: a node's connections and their requests as one object, with its methods for Python.

Input is bytes and the time, output is bytes and hand-offs: no sockets, no clock, no Trio. `connection/connections.pyx`
holds the connections, `request/intake.pyx` takes arrived bytes apart, `request/requests.pyx` serves requests,
`request/handoff.pyx` hands requests to Python, `peer/relay_driver.pyx` waits for other nodes. `loop.pyx` drives the
core over sockets or simulated streams.

Thread rule: one thread owns the first serving loop's core; a core lock guards each other core (`core_lock.pyx`). The
loop drops the GIL inside the core. A `nogil` function therefore touches no Python object except the published table,
which only the owner replaces, between steps.
"""

cimport cython
from cpython.object cimport PyObject
from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free

from gossipkv.wire._buffer cimport buffer_release
from gossipkv.wire._wire cimport FRAME_DEPTH, FRAME_ELEMENTS, Blob, FrameLimits, LatencyHistogram

cdef enum:
    NODE_FRAME_BYTES = 17 * 1024 * 1024  # The greatest `max_frame`: the largest record fits.


cdef Blob blob_of(bytes text):
    return Blob(<const uint8_t*><const char*>text, len(text))


@cython.final
@cython.no_gc_clear  # Running scans and batches hold their table until they end.
cdef class Core:
    """The connections of one serving loop and their requests; `group` holds the limits of the node's loops."""

    def __cinit__(
        self,
        *,
        Py_ssize_t max_frame,
        int max_depth,
        Py_ssize_t max_elements,
        Py_ssize_t max_key,
        Py_ssize_t max_value,
        int max_in_flight,
        Py_ssize_t max_queued,
        int64_t frame_timeout_ms,
        int64_t output_timeout_ms,
        int64_t idle_timeout_ms,
        Py_ssize_t scan_limit,
        int64_t proxy_timeout_ms=100,
        int64_t proxy_stage_timeout_ms=25,
        uint64_t seed=0,
        str node not None="",
        LoopGroup group not None,
        int pump=0,
        resp_databases=(), str hosts not None="",
    ):
        if min(max_frame, max_depth, max_elements, max_key, max_value, max_queued) < 1 or min(
            max_in_flight, scan_limit
        ) < 1:
            raise ValueError("every limit of a core must be positive")
        if max_depth > FRAME_DEPTH:
            raise ValueError(f"max_depth must be at most {FRAME_DEPTH}, not {max_depth}")
        if not 0 <= pump < group.size:
            raise ValueError(f"a group of {group.size} loops has no loop {pump}")
        if pump > 0:
            self.lock = CoreLock()
        self.thread = <long>PyThread_get_thread_ident()
        self.connections = Connections(
            max_in_flight=max_in_flight,
            max_queued=max_queued,
            group=group,
            pump=pump,
            frame_timeout_ms=frame_timeout_ms,
            output_timeout_ms=output_timeout_ms,
            idle_timeout_ms=idle_timeout_ms,
        )
        self.out = &self.connections.out
        self.counts = self.connections.counts
        self.published = PublishedTable(())
        self.retired = []
        self.frame_limits.max_size = max_frame
        self.frame_limits.max_depth = max_depth
        self.frame_limits.max_elements = max_elements
        self.read_limits.max_frame = max_frame
        self.read_limits.max_key = max_key
        self.read_limits.max_value = max_value
        self.most_ahead_ms = 60000  # Until the store is open.
        self.connections.scans.limits = self.read_limits
        self.connections.scans.scan_limit = scan_limit
        self.driver = RelayDriver(self.connections, node, proxy_timeout_ms, proxy_stage_timeout_ms, seed)
        # Between nodes: the most that settings allow to clients, since any node must read what another one sends.
        self.driver.frame_limits = FrameLimits(max(max_frame, NODE_FRAME_BYTES), FRAME_ELEMENTS, FRAME_DEPTH)
        self.driver.read_limits = self.read_limits
        set_wait_reasons(self.driver)
        self.answered = LatencyHistogram()
        self.cold = self.driver.cold
        self.handed_off = LatencyHistogram()
        self.driver.answered_here = self.answered
        self.connections.http.node = self.driver.own_name
        self.connections.http.dated_s = -1
        self.connections.http.table = <PyObject*>self.published
        self.keep_types("application/octet-stream", {})
        self.set_names([name.encode() for name in resp_databases], hosts.encode())
        begin_step(self)

    cdef int set_names(self, list names, bytes hosts) except -1:
        """Set the databases that RESP clients select by number, and the hosts for which HTTP is answered."""
        cdef int i
        self.http_hosts = hosts
        self.connections.http.hosts = blob_of(hosts)
        self.resp_databases = names
        self.resp_name_count = <int>len(names)
        self.resp_names = <Blob*>calloc(self.resp_name_count + 1, sizeof(Blob))
        if self.resp_names == NULL:
            raise MemoryError
        for i in range(self.resp_name_count):
            self.resp_names[i] = blob_of(names[i])
        return 0

    def __dealloc__(self):
        free(self.resp_names)
        free(self.gathered.tables)
        buffer_release(&self.words)
        if self.cold is not None:
            self.cold.end()
        if self.connections is not None:
            self.connections.drop_readers()

    cdef int check_thread(self) except -1:
        """Raise RuntimeError unless this thread may enter the core: a step that dropped the GIL would race."""
        if self.lock is not None:
            if not self.lock.is_mine():
                raise RuntimeError("this thread does not hold the core lock")
        elif <long>PyThread_get_thread_ident() != self.thread:
            raise RuntimeError("a core belongs to the thread that made it")
        return 0

    cdef int release_retired(self) except -1:
        """Release the tables that are no longer served, except those that a scan still reads from."""
        if self.retired:
            self.retired = release_unread(self.retired)
        return 0

    @property
    def has_retired(self):
        """True if retired tables wait for release in a core where no round of Python releases them anyway."""
        return self.lock is not None and len(self.retired) > 0

    def publish(self, PublishedTable published not None):
        """Serve this table from the next message on; counters continue.

        The older table's files are released when the last scan that reads from them has ended.
        """
        cdef PublishedTable older = self.published
        self.check_thread()
        if published is not older:
            published.inherit(older)
            self.published = published
            self.driver.published = published
            self.connections.http.table = <PyObject*>published
            self.retired = release_unread([*self.retired, older])

    def let_read(self, list bitmaps not None, *, bint wants_tokens=False):
        """Set which users may read which of the served data (`PublishedTable.let_read`).

        With `wants_tokens` a client without a token may do nothing, so clients prove themselves by a token.
        """
        self.check_thread()
        self.connections.wants_tokens = wants_tokens
        self.published.let_read(bitmaps)

    def know_types(self, str usual not None, dict by_database not None):
        """Set the media types of values over HTTP: `{database: media type}`, and `usual` for other databases."""
        self.check_thread()
        self.keep_types(usual, by_database)

    cdef int keep_types(self, str usual, dict by_database) except -1:
        cdef HttpWords* words = &self.connections.http
        cdef MediaType* types = <MediaType*>calloc(len(by_database) + 1, sizeof(MediaType))
        cdef list kept = [usual.encode()]
        cdef Py_ssize_t i
        if types == NULL:
            raise MemoryError
        for name, media_type in sorted([(key.encode(), text.encode()) for key, text in by_database.items()]):
            kept += [name, media_type]
        for i in range(len(by_database)):
            types[i] = MediaType(blob_of(kept[1 + 2 * i]), blob_of(kept[2 + 2 * i]))
        free(words.types)
        words.types = types
        words.type_count = len(by_database)
        words.usual = blob_of(kept[0])
        self.http_types = kept
        return 0

    def set_peer(self, int column, str name not None, int state):
        """Record a member under a column (a small number) with its state: 0 ALIVE, 1 SUSPECT, 2 DEAD."""
        self.check_thread()
        self.driver.peers.routes.set_peer(column, name, state)

    def end_peer(self, int column):
        """End the connection to a member, which stays known."""
        self.check_thread()
        self.driver.peers.end_peer(column)

    def forget_peer(self, int column):
        """Forget a member and end its connection: the column may be reused."""
        self.check_thread()
        self.driver.peers.forget_peer(column)

    def set_holder(self, bytes identity not None, Py_ssize_t partitions, int column, bytes bitmap not None):
        """Record which of an identity's partitions a peer holds: bit p of `bitmap`, the lowest first."""
        self.check_thread()
        self.driver.peers.routes.set_holder(identity, partitions, column, bitmap)

    def expire_from(self, uint64_t least_ms, uint64_t most_ahead_ms):
        """Let records expire by this time of day at least, as far as that is at most so far ahead of the clock."""
        self.check_thread()
        self.read_limits.now_ms = max(self.read_limits.now_ms, least_ms)
        self.most_ahead_ms = most_ahead_ms

    def forget_route(self, bytes identity not None):
        """Forget all holders of an identity; reads of it are handed off from now on."""
        self.check_thread()
        self.driver.peers.routes.forget_route(identity)

    def ask(self, int column, bytes method not None, bytes params not None, int64_t timeout_ms):
        """Send a request in the next round. Return the token of its answer, or 0 if the peer cannot be asked now."""
        self.check_thread()
        return ask_peer(self.driver, column, method, params, timeout_ms)

    def take_replies(self):
        """Return replies since the last call: `(token, result or None, error or None)`; both None for a lost one."""
        return take_replies(self.driver) if self.connections.relays.first_reply != NULL else []

    def take_peer_events(self):
        """Return events of peers, and of reads that they take over, since the last call: `(column, event, detail)`."""
        return self.driver.peers.take_peer_events() if self.driver.peers.has_events() else []

    def broken_invariants(self):
        """Describe the invariants broken since the last call, with the connection; only the debug build checks them."""
        return self.connections.take_broken()

    def latency(self):
        """Return histograms of answer times, from the receive of the request to the send of the answer."""
        return {
            "local": self.answered,
            "forwarded": self.driver.answered,
            "handed_off": self.handed_off,
        }

    def counters(self):
        """Return every counter by name, and the current levels."""
        result = counters_by_name(self.counts)
        result["connections"] = self.connections.connection_count - self.connections.peer_count
        result["peers"] = self.connections.peer_count
        result["in_flight"] = self.connections.in_flight_count
        result["held_bytes"] = (
            self.connections.held_bytes + self.connections.scans.held_bytes + self.connections.relays.held_bytes
        )
        result |= scans_counters(&self.connections.scans)
        result["waiting_bytes"] = self.connections.backlog.size_bytes + self.connections.backlog.parked_bytes
        return result

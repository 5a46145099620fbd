"""Routes: for each identity a bit matrix of holders, with a row for each partition and a column for each peer.

Python gives each member a column (a small number), and sets its state and its partitions. The serving loop reads a row
to choose a peer. A change of state touches only the peer, new partitions only its column, and neither touches the table
of local data. Rows are contiguous in memory because requests read rows. `gossipkv.placement.candidates` defines the
order of candidates, and `peers.pyx` follows it.
"""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memset

from gossipkv.wire._wire cimport Blob

cdef enum:
    MIN_ROUTES = 16
    MAX_PARTITIONS = 65536


cdef inline uint32_t home_of(const uint8_t* identity) noexcept nogil:
    """Return the home slot of an identity, which is a digest, so any of its bytes will do."""
    cdef uint32_t home
    memcpy(&home, identity, sizeof(uint32_t))
    return home


@cython.final
cdef class Routes:
    """The peers, and the partitions that each holds."""

    def __cinit__(self, uint64_t seed):
        self.names = []
        self.state = seed * 2 + 1
        self.mask = MIN_ROUTES - 1
        self.routes = <Route*>calloc(MIN_ROUTES, sizeof(Route))
        if self.routes == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef uint32_t i
        if self.routes != NULL:
            for i in range(self.mask + 1):
                free(self.routes[i].rows)
        free(self.routes)
        free(self.peers)

    # From Python ------------------------------------------------------------------------------------------------

    def set_peer(self, int column, str name not None, int state):
        """Record a member under that column with its state: 0 ALIVE, 1 SUSPECT, 2 DEAD."""
        cdef bytes encoded = name.encode()
        cdef uint32_t count
        cdef Peer* peers
        if not 0 <= column < MAX_PEERS:
            raise ValueError(f"a column must be a number below {MAX_PEERS}, not {column}")
        if not 0 <= state <= 2:
            raise ValueError(f"a state must be 0, 1 or 2, not {state}")
        if <uint32_t>column >= self.peer_count:
            count = <uint32_t>column + 1
            peers = <Peer*>realloc(self.peers, count * sizeof(Peer))
            if peers == NULL:
                raise MemoryError
            memset(peers + self.peer_count, 0, (count - self.peer_count) * sizeof(Peer))
            self.names += [None] * (count - self.peer_count)
            self.peers = peers
            self.peer_count = count
        if len(encoded) > LONGEST_NAME:
            raise ValueError(f"a node's name must have at most {LONGEST_NAME} bytes, not {len(encoded)}")
        self.names[column] = encoded
        self.peers[column].name = Blob(<const uint8_t*><const char*>encoded, len(encoded))
        self.peers[column].known = True
        self.peers[column].state = state

    def forget_peer(self, int column):
        """Forget the peer and its partitions; the column may be reused."""
        cdef uint32_t i
        cdef Py_ssize_t p
        cdef uint64_t keep = ~(<uint64_t>1 << (column % 64))
        cdef Route* route
        memset(self.peer(column), 0, sizeof(Peer))
        for i in range(self.mask + 1):
            route = &self.routes[i]
            if route.rows != NULL and <uint32_t>column < 64 * route.words:
                for p in range(route.partitions):
                    route.rows[p * route.words + column // 64] &= keep

    def set_holder(self, bytes identity not None, Py_ssize_t partitions, int column, bytes bitmap not None):
        """Record which of an identity's partitions a peer holds: bit p of `bitmap`, the lowest first."""
        cdef const uint8_t* bits = bitmap
        cdef Py_ssize_t size = len(bitmap)
        cdef uint64_t bit = <uint64_t>1 << (column % 64)
        cdef uint64_t* at
        cdef Route* route
        cdef Py_ssize_t p
        self.peer(column)
        if len(identity) != IDENTITY_BYTES:
            raise ValueError(f"an identity must have {IDENTITY_BYTES} bytes, not {len(identity)}")
        if not 1 <= partitions <= MAX_PARTITIONS:
            raise ValueError(f"the number of partitions must be from 1 to {MAX_PARTITIONS}, not {partitions}")
        if size * 8 < partitions:
            raise ValueError(f"a bitmap of {size} bytes is too short for {partitions} partitions")
        route = self.find(identity)
        if route == NULL:
            if 2 * self.count > self.mask:
                self.grow()
            route = self.slot_of(identity)
            route.rows = <uint64_t*>calloc(partitions, sizeof(uint64_t))
            if route.rows == NULL:
                raise MemoryError
            memcpy(route.identity, <const uint8_t*>identity, IDENTITY_BYTES)
            route.partitions = partitions
            route.words = 1
            self.count += 1
        elif route.partitions != partitions:
            raise ValueError(f"the identity already has {route.partitions} partitions, not {partitions}")
        self.widen(route, column)
        at = route.rows + column // 64
        for p in range(partitions):
            if bits[p >> 3] >> (p & 7) & 1:
                at[0] |= bit
            else:
                at[0] &= ~bit
            at += route.words

    def forget_route(self, bytes identity not None):
        """Forget all holders of that identity."""
        cdef Route* route = self.find(identity) if len(identity) == IDENTITY_BYTES else NULL
        cdef Route* slots = self.routes
        cdef uint32_t i
        if route == NULL:
            return
        free(route.rows)
        route.rows = NULL
        self.count -= 1
        # Rehash all routes, since probing stops at a gap: there are few routes, and removals are rare.
        self.routes = <Route*>calloc(self.mask + 1, sizeof(Route))
        if self.routes == NULL:
            self.routes = slots
            raise MemoryError
        for i in range(self.mask + 1):
            if slots[i].rows != NULL:
                self.slot_of(slots[i].identity)[0] = slots[i]
        free(slots)

    # In C -------------------------------------------------------------------------------------------------------

    cdef Route* slot_of(self, const uint8_t* identity) noexcept nogil:
        """Return the place of the route, or the empty place for it."""
        cdef uint32_t at = home_of(identity) & self.mask
        while self.routes[at].rows != NULL and memcmp(self.routes[at].identity, identity, IDENTITY_BYTES) != 0:
            at = (at + 1) & self.mask
        return &self.routes[at]

    cdef Route* find(self, const uint8_t* identity) noexcept nogil:
        """Return the route of that identity; NULL for none."""
        cdef Route* route = self.slot_of(identity)
        return route if route.rows != NULL else NULL

    cdef int grow(self) except -1:
        """Double the number of places."""
        cdef Route* slots = self.routes
        cdef uint32_t before = self.mask + 1
        cdef uint32_t i
        self.routes = <Route*>calloc(2 * before, sizeof(Route))
        if self.routes == NULL:
            self.routes = slots
            raise MemoryError
        self.mask = 2 * before - 1
        for i in range(before):
            if slots[i].rows != NULL:
                self.slot_of(slots[i].identity)[0] = slots[i]
        free(slots)
        return 0

    cdef int widen(self, Route* route, uint32_t column) except -1:
        """Widen the rows to contain that column."""
        cdef uint32_t words = route.words
        cdef uint64_t* rows
        cdef Py_ssize_t p
        while 64 * words <= column:
            words *= 2
        if words == route.words:
            return 0
        rows = <uint64_t*>calloc(route.partitions * words, sizeof(uint64_t))
        if rows == NULL:
            raise MemoryError
        for p in range(route.partitions):
            memcpy(rows + p * words, route.rows + p * route.words, route.words * sizeof(uint64_t))
        free(route.rows)
        route.rows = rows
        route.words = words
        return 0

    cdef Peer* peer(self, int column) except NULL:
        """Return the peer of that column. Raises: KeyError if there is none."""
        if not 0 <= column < <int>self.peer_count or not self.peers[column].known:
            raise KeyError(f"no peer has column {column}")
        return &self.peers[column]

    cdef uint32_t draw(self, uint32_t count) noexcept nogil:
        """Return a random number below `count` (xorshift64*: guessing which peer a read asks gains nothing)."""
        self.state ^= self.state >> 12
        self.state ^= self.state << 25
        self.state ^= self.state >> 27
        return <uint32_t>((self.state * 0x2545F4914F6CDD1DULL) >> 33) % count

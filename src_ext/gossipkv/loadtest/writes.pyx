"""The truth of a load that writes: which values may be read, by what was written.

A value tells its run, its key and the number of its write, and the rest of it follows from those.  So nothing is kept
of values, and one that was never written is known by itself.  Writes of a key are numbered as they are begun:

    b is before a   b had ended `APART_MS` before a was begun; between others the servers' clocks decide
    acknowledged    at the end of the load no write before it is read
    stray           an error, or lost with its connection: it may be there or not, at any time
    seen            a session that has read or written a reads no write before a any more

The state of a key is some 60 bytes, that of a session its token and its last `SEEN` keys, and strays beyond
`MAX_STRAYS` make what they could explain unchecked.  To judge without a list of writes in flight, each key has a mark:
once all before the mark have ended, and `APART_MS` have passed, they are settled, and the mark moves up.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy

from gossipkv.wire._buffer cimport Buffer, buffer_append, buffer_release, buffer_reserve
from gossipkv.wire._wire cimport Blob

cdef enum:
    APART_MS = 20  # The clocks of servers are trusted so far.
    SERVERS_APART_MS = 1000  # A record may expire earlier by so much.

FAULT_NAMES = (None, "never_written", "went_back", "lost_write")


cdef inline uint64_t filler_of(uint64_t run, uint32_t key, uint32_t write) noexcept nogil:
    """Return the state from which the rest of a value is drawn."""
    return run ^ (<uint64_t>key << 32 | write)


@cython.final
cdef class Writes:
    """The writes to `count` keys; a `run` is a number that no other run has.

    `sessions`: with so many users each request belongs to one of them; `ours`: no value of another origin is right;
    `ttl_ms`: once the first write is that old, a record may be absent; 0: never.
    """

    def __cinit__(
        self, uint32_t count, *, uint64_t run, sizes=(100, 100), uint32_t sessions=0, bint ours=False,
        uint64_t ttl_ms=0,
    ):
        cdef uint32_t i
        self.shortest, self.longest = sizes
        if count < 1 or not VALUE_HEAD <= self.shortest <= self.longest:
            raise ValueError(f"a value must have at least {VALUE_HEAD} bytes, got {sizes}")
        self.count, self.run, self.is_ours, self.ttl_ms = count, run, ours, ttl_ms
        self.sessions = sessions > 0
        self.users = sessions
        self.keys = <WrittenKey*>calloc(count, sizeof(WrittenKey))
        self.all_sessions = <Session*>calloc(sessions + 1, sizeof(Session))
        self.idle = <Session**>calloc(sessions + 1, sizeof(Session*))
        if self.keys == NULL or self.all_sessions == NULL or self.idle == NULL:
            raise MemoryError
        for i in range(sessions):
            self.free_session(self.all_sessions + i)

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.users if self.all_sessions != NULL else 0):
            buffer_release(&self.all_sessions[i].token)
        free(self.all_sessions)
        free(self.idle)
        free(self.keys)
        free(self.strays)

    def value(self, uint32_t key, uint32_t write):
        """Return the value of a write."""
        cdef Buffer out = Buffer(NULL, 0, 0, 0)
        cdef Asked asked = Asked(key, write, 0)
        if buffer_reserve(&out, self.longest + 8) < 0:
            raise MemoryError
        self.put_value(&out, &asked)
        found = out.data[:out.end]
        buffer_release(&out)
        return found

    def begin_final(self, *, bint tells_lost):
        """Judge reads as those of the end: what was acknowledged must be there, now (`tells_lost`) or soon."""
        self.is_final = True
        self.tells_lost = tells_lost

    def unconfirmed(self):
        """Return the keys with an acknowledged write that were not yet read rightly at the end."""
        return [key for key in range(self.count) if self.keys[key].floor > 0 and not self.keys[key].is_confirmed]

    def unwritten(self, numbers):
        """Return how many of these keys have no acknowledged write."""
        return sum(self.keys[<uint32_t>key].floor == 0 for key in numbers)

    def first_fault(self):
        """Return `(name, key, the write that was read or 0, the first that may be)` of the first fault, or None."""
        if self.fault == NO_FAULT:
            return None
        return FAULT_NAMES[self.fault], self.fault_key, self.fault_read, self.fault_floor

    # Sessions -----------------------------------------------------------------------------------------------------

    cdef Session* take_session(self) noexcept nogil:
        """Take the one that has waited longest, so that users go from server to server.  Requires: one is idle."""
        cdef Session* session = self.idle[self.idle_begin % self.users]
        self.idle_begin += 1
        return session

    cdef void free_session(self, Session* session) noexcept nogil:
        self.idle[self.idle_end % self.users] = session
        self.idle_end += 1

    cdef void saw(self, const Blob* token) noexcept nogil:
        """Keep the token of an answer, which covers the one that the request showed."""
        if self.session != NULL and 0 < token.size <= TOKEN_BYTES:
            self.session.token.start = 0
            self.session.token.end = 0
            buffer_append(&self.session.token, token.data, token.size)

    cdef void remember(self, uint32_t key, uint32_t floor) noexcept nogil:
        cdef SeenKey* seen
        if self.session == NULL:
            return
        seen = &self.session.seen[key % SEEN]
        seen.floor = max(floor, seen.floor) if seen.key == key else floor
        seen.key = key

    # Writes -------------------------------------------------------------------------------------------------------

    cdef void begin(self, Asked* asked, bint deletes, uint32_t now_ms) noexcept nogil:
        """Begin a new write of a key."""
        cdef WrittenKey* state = self.keys + asked.key
        if not self.has_begun:
            self.has_begun, self.first_ms = True, now_ms
        self.advance(state, now_ms)
        state.last += 1
        state.younger += 1
        if deletes:
            state.deleted = state.last
        asked.write = state.last
        asked.base = max(<uint32_t>1, state.settled)
        state.bases[state.last % RECENT] = asked.base

    cdef void end(self, const Asked* asked, bint deletes, bint is_done, uint32_t now_ms) noexcept nogil:
        """Note the outcome of a write; without `is_done` nobody knows it.  Strays that delete have the number 0."""
        cdef WrittenKey* state = self.keys + asked.key
        cdef uint32_t room = max(<uint32_t>1024, 2 * self.stray_room)
        cdef Stray* strays
        if asked.write < state.mark:
            state.older -= 1
            state.ready_ms = now_ms
        else:
            state.younger -= 1
        state.ended_ms = now_ms
        self.advance(state, now_ms)
        if is_done:
            state.floor = max(state.floor, asked.base)
            self.remember(asked.key, asked.base)
            return
        if self.stray_count == self.stray_room and room <= MAX_STRAYS:
            strays = <Stray*>realloc(self.strays, room * sizeof(Stray))
            if strays != NULL:
                self.strays = strays
                self.stray_room = room
        if self.stray_count == self.stray_room:
            self.has_more_strays = True
            return
        self.strays[self.stray_count] = Stray(asked.key, 0 if deletes else asked.write)
        self.stray_count += 1

    cdef void advance(self, WrittenKey* state, uint32_t now_ms) noexcept nogil:
        """Move the mark up; a second time, if all had ended long ago."""
        for _ in range(2):
            if state.older > 0 or (state.mark > 0 and now_ms - state.ready_ms < APART_MS):
                return
            state.settled = state.mark
            state.mark = state.last + 1
            state.older = state.younger
            state.younger = 0
            state.ready_ms = state.ended_ms

    cdef Py_ssize_t size_of(self, const Asked* asked) noexcept nogil:
        cdef uint64_t state = ~filler_of(self.run, asked.key, asked.write)
        return self.shortest + below(&state, <uint64_t>self.longest - self.shortest + 1)

    cdef void put_value(self, Buffer* out, const Asked* asked) noexcept nogil:
        """Write the value of a write.  Requires: there is room for it, and 8 bytes more."""
        cdef uint64_t state = filler_of(self.run, asked.key, asked.write)
        cdef Py_ssize_t at = VALUE_HEAD
        cdef Py_ssize_t size = self.size_of(asked)
        cdef uint8_t* to = out.data + out.end
        cdef uint64_t piece
        memcpy(to, &self.run, 8)
        memcpy(to + 8, &asked.key, 4)
        memcpy(to + 12, &asked.write, 4)
        while at < size:
            piece = mixed(&state)
            memcpy(to + at, &piece, 8)
            at += 8
        out.end += size

    # Reads --------------------------------------------------------------------------------------------------------

    cdef bint is_stray(self, uint32_t key, uint32_t write) noexcept nogil:
        cdef uint32_t at = self.stray_count
        while at > 0:
            at -= 1
            if self.strays[at].key == key and self.strays[at].write == write:
                return True
        return False

    cdef void judge(self, uint32_t key, const uint8_t* data, Py_ssize_t size, Reply* reply) noexcept nogil:
        """Judge the value of a key, or its absence (NULL)."""
        cdef WrittenKey* state = self.keys + key
        cdef SeenKey* seen = &self.session.seen[key % SEEN] if self.session != NULL else NULL
        cdef uint32_t seen_floor = seen.floor if seen != NULL and seen.key == key else 0
        cdef uint32_t floor = max(seen_floor, state.floor if self.is_final else 0)
        cdef Asked read = Asked(key, 0, 0)
        cdef int origin = NO_ORIGIN if data == NULL else origin_of(self.run, key, data, size, &read.write)
        cdef int fault = NO_FAULT
        if data == NULL:
            reply.misses += 1
            read.write = state.deleted
        elif origin == THIS_RUN:
            if not 0 < read.write <= state.last or size != self.size_of(&read):
                fault = NEVER_WRITTEN
        elif origin == NO_ORIGIN:
            if self.is_ours:
                fault = NEVER_WRITTEN
            else:
                reply.unchecked += 1
        if data == NULL and 0 < self.ttl_ms <= <uint64_t>(self.now_ms - self.first_ms) + SERVERS_APART_MS:
            floor = 0
        if fault == NO_FAULT and read.write < floor and not self.is_stray(key, read.write if data != NULL else 0):
            if self.has_more_strays:
                reply.unchecked += 1
            else:
                fault = WENT_BACK if read.write < seen_floor else LOST_WRITE
        if fault == NO_FAULT:
            state.is_confirmed |= self.is_final
            if read.write > 0 and data != NULL and read.write + RECENT > state.last:
                self.remember(key, state.bases[read.write % RECENT])
        elif fault != LOST_WRITE or self.tells_lost:
            if self.fault == NO_FAULT:
                self.fault, self.fault_key, self.fault_read, self.fault_floor = fault, key, read.write, floor
            reply_wrong(reply, key, data, size)


cdef int origin_of(uint64_t run, uint32_t key, const uint8_t* data, Py_ssize_t size, uint32_t* write) noexcept nogil:
    """Return who wrote a value; `write` is its number in this run, else 0."""
    cdef uint64_t of_run
    cdef uint32_t of_key
    cdef uint32_t number
    cdef uint64_t state
    cdef uint64_t piece
    cdef Py_ssize_t at = VALUE_HEAD
    if size < VALUE_HEAD:
        return NO_ORIGIN
    memcpy(&of_run, data, 8)
    memcpy(&of_key, data + 8, 4)
    memcpy(&number, data + 12, 4)
    state = filler_of(of_run, of_key, number)
    while at < size:
        piece = mixed(&state)
        if memcmp(data + at, &piece, min(<Py_ssize_t>8, size - at)) != 0:
            return NO_ORIGIN
        at += 8
    if of_key != key:
        return NO_ORIGIN
    if of_run != run:
        return OTHER_RUN
    write[0] = number
    return THIS_RUN

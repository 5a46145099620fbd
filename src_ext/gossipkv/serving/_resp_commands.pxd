"""Commands of RESP as requests.  The idea stands in `_resp_commands.pyx`."""

from libc.stdint cimport int64_t, uint8_t

from gossipkv.serving._connections cimport Connection
from gossipkv.serving._core cimport Core
from gossipkv.serving._resp_answers cimport Form
from gossipkv.wire._message cimport Blob, Cursor, Envelope

cdef enum Verb:
    OTHER = 0  # Python knows it, or that there is none
    NOTHING = 1
    ONE_KEY = 2  # a `get`
    MANY_KEYS = 3  # a `get_many` for each database
    SET = 4
    SET_MANY = 5
    DELETE = 6
    PING = 7
    ECHO = 8
    SELECT = 9
    HELLO = 10
    RESET = 11
    AUTH = 12
    CLIENT = 13
    QUIT = 14
    REFUSED = 15  # `why` says it

cdef struct Command:
    Verb verb
    Form form
    Py_ssize_t count  # of its words, the name among them
    Blob name
    Cursor words  # behind the name
    const char* why
    int64_t first  # of a part of a value
    int64_t last
    Envelope request  # of one key: the whole of it; of many: the method


cdef void read_command(
    Core core, const Connection* connection, const uint8_t* data, Py_ssize_t size, Command* command
) noexcept nogil
cdef bint owe_answer(Core core, Connection* connection, const Command* command, int parts) noexcept nogil
cdef void take_command(Core core, Connection* connection, Command* command) noexcept nogil
cdef void say_line(Core core, Connection* connection, const char* line) noexcept nogil
cdef void say_now(Core core, Connection* connection, const uint8_t* data, Py_ssize_t size) noexcept nogil

"""The options of reads that the loop understands, as in `docs/users/wire.md`.

An unknown option is no error here: the read is handed off, and Python reports the error.
"""

from libc.stdint cimport uint64_t

from gossipkv.wire._wire cimport (
    Blob, Cursor, blob_is, take_bin, take_blob, take_blob_or_nil, take_flag_or_nil, take_map, take_nil, take_unsigned,
)

cdef extern from "<stdint.h>" nogil:
    const uint64_t ANY_FRAME "UINT64_MAX"

cdef enum:
    IDENTITY_BYTES = 16  # size of a version's identity between nodes

cdef struct ReadOptions:
    Blob version
    Blob min_version
    Blob identity
    uint64_t timeout_ms
    uint64_t max_frame  # limit of the asking node; else ANY_FRAME
    bint choosing  # a version other than the active one may be wanted
    bint has_version
    bint has_min_version
    bint has_identity
    bint has_timeout
    bint forwarded  # the caller is a node
    bint local  # never forwarded
    bint explain  # a get's answer names the answering node


cdef inline bint take_timeout(Cursor* cursor, uint64_t* timeout_ms) noexcept nogil:
    """Parse a `timeout_ms` that Python would accept (`gossipkv.wire.arguments`)."""
    return take_unsigned(cursor, timeout_ms) and timeout_ms[0] <= <uint64_t>1 << 40


cdef inline bint take_option(Cursor* params, bint many, ReadOptions* options) noexcept nogil:
    """Parse one option and its value. Return False if the loop does not understand them."""
    cdef Blob name
    if not take_blob(params, &name):
        return False
    if blob_is(&name, b"version", 7):
        return take_blob_or_nil(params, &options.version, &options.has_version)
    if blob_is(&name, b"min_version", 11):
        return take_blob_or_nil(params, &options.min_version, &options.has_min_version)
    if blob_is(&name, b"timeout_ms", 10):
        options.has_timeout = not take_nil(params)
        return not options.has_timeout or take_timeout(params, &options.timeout_ms)
    if blob_is(&name, b"identity", 8):
        options.has_identity = not take_nil(params)
        return not options.has_identity or (
            take_bin(params, &options.identity) and options.identity.size == IDENTITY_BYTES
        )
    if blob_is(&name, b"forwarded", 9):
        return take_flag_or_nil(params, &options.forwarded)
    if blob_is(&name, b"max_frame", 9):
        return take_nil(params) or (take_unsigned(params, &options.max_frame) and options.max_frame > 0)
    if blob_is(&name, b"explain", 7):
        return not many and take_flag_or_nil(params, &options.explain)
    return blob_is(&name, b"local", 5) and take_flag_or_nil(params, &options.local)


cdef inline bint take_options(Cursor* params, Py_ssize_t count, bint many, ReadOptions* options) noexcept nogil:
    """Parse the last parameter, if any. Return False if it holds anything but options that are understood here.

    `many` is for a `get_many`, which has no `explain`, since its values may come from several nodes. A forwarding node
    names the identity, makes no other choice of a version, and may give its frame limit; clients give neither.
    """
    cdef Py_ssize_t entries
    options.choosing = options.has_version = options.has_min_version = options.has_identity = False
    options.has_timeout = options.forwarded = options.local = options.explain = False
    options.timeout_ms = 0
    options.max_frame = ANY_FRAME
    if count == 2:
        return True
    entries = take_map(params)
    if entries < 0:
        return False
    while entries > 0:
        entries -= 1
        if not take_option(params, many, options):
            return False
    options.choosing = options.has_version or options.has_min_version or options.forwarded
    if options.forwarded:
        return options.has_identity and not options.has_version and not options.has_min_version
    return not options.has_identity and options.max_frame == ANY_FRAME

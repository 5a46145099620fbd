"""The serving loop's judgement of hosts (`host_is_expected`), for the gateway."""

from gossipkv.wire._text cimport host_is_expected


def is_expected_host(bytes host not None, bytes names not None):
    cdef Blob given = Blob(<const uint8_t*><char*>host, len(host))
    return host_is_expected(given, Blob(<const uint8_t*><char*>names, len(names)))

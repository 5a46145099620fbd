"""The keys of tokens; `token_keys.pxd` has the form of a seal."""

from gossipkv.storage._storage cimport crc32c_of

TOKEN_SEAL = <int>TOKEN_SEAL_BYTES


def siphash(bytes key not None, bytes data not None):
    """Return SipHash-2-4-128 of the data by a key of 16 bytes."""
    cdef uint64_t words[2]
    cdef uint8_t into[16]
    take_secret(key, words)
    siphash128(words, bytes_of(data), <size_t>PyBytes_GET_SIZE(data), into)
    return PyBytes_FromStringAndSize(<const char*>into, 16)


cdef int take_secret(bytes key, uint64_t* words) except -1:
    cdef int at
    if len(key) != 16:
        raise ValueError(f"a key of tokens has 16 bytes, not {len(key)}")
    for at in range(2):
        words[at] = <uint64_t>int.from_bytes(key[8 * at:8 * at + 8], "little")
    return 0


@cython.final
cdef class TokenKeys:
    """The keys of a cluster's tokens: the first one seals, and each verifies."""

    def __cinit__(self, bytes cluster not None, keys):
        """`keys`: pairs of an id of 4 bytes and a secret of 16 bytes."""
        self.cluster, self.count = cluster, 0
        if not 1 <= len(keys) <= MAX_TOKEN_KEYS:
            raise ValueError(f"tokens have 1 to {MAX_TOKEN_KEYS} keys, not {len(keys)}")
        for id_, secret in keys:
            memcpy(self.keys[self.count].name, bytes_of(self.name_of(id_)), KEY_NAME_BYTES)
            take_secret(secret, self.keys[self.count].secret)
            self.count += 1

    cdef bytes name_of(self, bytes id_):
        cdef bytes covered = self.cluster + id_
        checksum = crc32c_of(bytes_of(covered), PyBytes_GET_SIZE(covered), 0)
        name = id_ + int(checksum).to_bytes(4, "big")
        if len(name) != KEY_NAME_BYTES:
            raise ValueError(f"the id of a key has 4 bytes, not {len(id_)}")
        return name

    def seal(self, bytes token not None):
        """Return the token with its seal."""
        cdef uint8_t seal[TOKEN_SEAL_BYTES]
        seal_token(self, bytes_of(token), PyBytes_GET_SIZE(token), seal)
        return token + PyBytes_FromStringAndSize(<const char*>seal, TOKEN_SEAL_BYTES)

    def is_sealed(self, bytes token not None):
        """Return True if a token ends in a seal by one of the keys."""
        cdef Py_ssize_t size = PyBytes_GET_SIZE(token) - TOKEN_SEAL_BYTES
        return size >= 0 and is_sealed(self, bytes_of(token), size)

    def lacks_key(self, bytes token not None):
        """Return True if the seal of a token names a key of this cluster that is none of these."""
        name = token[-TOKEN_SEAL_BYTES:][:KEY_NAME_BYTES]
        cdef Py_ssize_t at
        for at in range(self.count):
            if self.keys[at].name[:KEY_NAME_BYTES] == name:
                return False
        return len(token) >= TOKEN_SEAL_BYTES and self.name_of(name[:4]) == name

"""Descriptors that one process passes to another, each with bytes that belong to it, over a socket pair.

    data         the bytes, MOST_BYTES at most; may be none
    SCM_RIGHTS   one descriptor

A message is whole or is not there (SOCK_SEQPACKET).  What has been sent waits in the socket, where whoever has either
end finds it: a sender that keeps the other end takes back what nobody has received.
"""

from __future__ import annotations

import socket
import struct
from typing import Final, NamedTuple

MOST_BYTES: Final = 128 << 10

# A message must fit whole, with what the kernel adds; it takes twice what is asked for, of net.core.wmem_max.
_BUFFER_BYTES: Final = 2 * MOST_BYTES

_DESCRIPTOR: Final = struct.Struct("i")


class Passed(NamedTuple):
    """What was received."""

    descriptor: int | None  # Whoever receives it closes it.  None: no further one was free, and the kernel closed it.
    data: bytes


def pair() -> tuple[socket.socket, socket.socket]:
    """Where to send and where to receive; neither waits, and programs that are started inherit neither.

    Raises:
        OSError: no descriptors are free.
    """
    sender, receiver = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
    for end in (sender, receiver):
        end.settimeout(0)
    return sender, receiver


def send(sender: socket.socket, descriptor: int, data: bytes) -> None:
    """Pass it on; the sender's own descriptor stays open.

    Raises:
        BlockingIOError: too much waits to be received.
        OSError: the system does not pass it on: too many descriptors are on their way, memory is short.
    """
    assert len(data) <= MOST_BYTES, len(data)
    socket.send_fds(sender, [data], [descriptor])


def receive(receiver: socket.socket) -> Passed | None:
    """Return what has waited for longest; None: the sender is gone.

    Raises:
        BlockingIOError: nothing waits.
    """
    data, ancillary, flags, _ = receiver.recvmsg(
        MOST_BYTES, socket.CMSG_SPACE(_DESCRIPTOR.size), socket.MSG_CMSG_CLOEXEC
    )
    assert not flags & socket.MSG_TRUNC, "a message is as long as it may be"
    if ancillary:
        ((_, _, content),) = ancillary
        (descriptor,) = _DESCRIPTOR.unpack(content)
        return Passed(descriptor, data)
    return Passed(None, data) if flags & socket.MSG_CTRUNC else None

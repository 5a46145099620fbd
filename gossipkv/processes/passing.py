"""Passing of descriptors to another process, each with some bytes, over a socket pair.

    data         the bytes, MAX_BYTES at most; may be none
    SCM_RIGHTS   one descriptor

A message is whole or absent (SOCK_SEQPACKET). Sent messages wait in the socket, where the holder of either end finds
them: a sender that keeps the receiving end can take back messages that nobody has received.
"""

from __future__ import annotations

import socket
import struct
from typing import Final, NamedTuple

MAX_BYTES: Final = 128 << 10

# A message must fit whole, with the kernel's overhead; the kernel doubles this size, within net.core.wmem_max.
_BUFFER_BYTES: Final = 2 * MAX_BYTES

_DESCRIPTOR: Final = struct.Struct("i")


class Passed(NamedTuple):
    """A received message."""

    descriptor: int | None  # The receiver closes it. None: no descriptor was free, and the kernel closed it.
    data: bytes


def pair() -> tuple[socket.socket, socket.socket]:
    """Return the sending and the receiving end; neither blocks, and started programs inherit neither.

    Raises:
        OSError: no descriptors are free.
    """
    sender, receiver = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
    for end in (sender, receiver):
        end.settimeout(0)
    return sender, receiver


def send(sender: socket.socket, descriptor: int, data: bytes) -> None:
    """Pass a descriptor on; the sender's own stays open.

    Raises:
        BlockingIOError: too many messages wait to be received.
        OSError: the system refuses: too many descriptors are in transit, or memory is short.
    """
    assert len(data) <= MAX_BYTES, len(data)
    socket.send_fds(sender, [data], [descriptor])


def receive(receiver: socket.socket) -> Passed | None:
    """Return the message that has waited longest; None: the sender is gone.

    Raises:
        BlockingIOError: nothing waits.
    """
    data, ancillary, flags, _ = receiver.recvmsg(
        MAX_BYTES, socket.CMSG_SPACE(_DESCRIPTOR.size), socket.MSG_CMSG_CLOEXEC
    )
    assert not flags & socket.MSG_TRUNC, "a message is as long as it may be"
    if ancillary:
        ((_, _, content),) = ancillary
        (descriptor,) = _DESCRIPTOR.unpack(content)
        return Passed(descriptor, data)
    return Passed(None, data) if flags & socket.MSG_CTRUNC else None

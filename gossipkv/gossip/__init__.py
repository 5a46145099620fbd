"""Gossip: which members are alive, and the keys they have published.

    profile.py      the constants, by network
    member.py       one member, and which of two statements about it is newer
    effects.py      the requests of a core to its shell
    protocols.py    the interfaces around both
    packets/        the messages byte by byte, plain and sealed
    membership/     failure detection: SWIM with Lifeguard
    tree/           the published keys: one branch for each member
    anti_entropy/   two nodes with different knowledge make each other equal
    inbox.py        incoming datagrams, and requests over TCP
    core.py         the core: it takes bytes and the time, and returns effects
    shell/          the Trio shell: sockets, timers, files

Gossip may order and delay operations, and never fences, counts or loses data.
"""

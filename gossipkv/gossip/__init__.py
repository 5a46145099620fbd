"""What is probably true: who is alive, and what they published.

Read in this order:

    profile.py      the constants, by network
    member.py       one member as others know it, which of two statements about it is newer, and what becomes of it
    effects.py      what a core asks of its shell; protocols.py: what gossip needs of those around it
    packets/        the messages byte by byte, plain and sealed
    membership/     who is alive: SWIM with Lifeguard
    tree/           what they published: branches, and what their readers see
    anti_entropy/   two nodes that know different things make each other equal
    inbox.py        what comes in: datagrams, and requests over TCP
    core.py         all of it behind one object that is told bytes and the time; how the parts are wired
    shell/          the Trio shell: sockets, timers, files

Nothing here decides: gossip may order and delay, never fence, count or lose data.
"""

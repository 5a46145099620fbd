"""What is probably true: who is alive, and what they published.

Read in this order:

    profile.py      the constants, by network
    member.py       one member as others know it, and which of two statements about it is newer
    packets.py      the messages byte by byte, over fields.py; envelope.py wraps them
    sealing.py      the sealed form, under the keys of keyring.py, which stand in a file (keyfile.py)
    effects.py      what a core asks of its shell
    membership/     who is alive: SWIM with Lifeguard
    tree/           what they published: branches, and what their readers see
    exchange.py     two nodes that know different things make each other equal; state_hash.py, digests.py and answers.py
                    say what differs, packing.py is how much of it travels
    core.py         all of it behind one object that is told bytes and the time
    agent.py        the Trio shell: sockets, timers, files; asking.py, keeping.py, seeds.py and ports.py are its hands

Nothing here decides: gossip may order and delay, never fence, count or lose data.
"""

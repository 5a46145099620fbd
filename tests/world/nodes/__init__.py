"""Whole nodes in one process, under Trio's simulated clock: the second simulation.

The heap simulation (`tests.world.world`) runs protocol cores; here runs what is around them as well: `node.run`
with its pump, its connections, its library and its gossip agent, as they run in production.  Simulated are what stands
behind the seam (`gossipkv.environment.seam`): clock, randomness, disk, network, threads and signals.

Read in this order:

    scheduling.py   Trio made deterministic
    network.py      the wire between machines: datagrams, and connections
    sockets.py      the same as one machine's processes see it
    process.py      one life of a node, and the rest of the world it is given
    building.py     builds of datasets, and merges, without a child process
    machine.py      a disk and the lives of a node upon it: start, kill, power loss, restart
    client.py       one question to a node
    views.py        what nodes show to clients, and whether it may be
    publishing.py   the same for what nodes publish
    phases.py       how scenarios begin, wait, break and mend
    scenarios.py    what nodes go through, by name (`churn.py`, `bad_network.py`, `misconfiguration.py`)
    sources.py      what lies at each machine's source of datasets, as files on its disk
    readers.py      clients of datasets under load; each answer is looked at (`testing.datasets.checkers`)
    sharing.py      a database that nodes share, and what may be demanded of them (`upgrades.py`, `losses.py`,
                    `differences.py`)
    table_clients.py    clients that make and drop tables, and what nodes show of them (`deciding.py`)
    replay.py       one run by a name and two numbers, and the command that repeats it
    cluster.py      machines on a network, what clients ask them, and trace.py: all that happened
"""

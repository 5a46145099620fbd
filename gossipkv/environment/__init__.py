"""The seam to the world.

Read in this order:

    seam.py         the operations on the world: clock, randomness, files, sockets, threads, signals, memory
    real_files.py   the real clock and files, also past the system's cache; enough for a process that only builds
    memory.py       the memory available for mapped files, according to the kernel
    cores.py        the number of processor cores
    small_file.py   small files that people write: settings, keys, users; their size limits and permissions
    ticks.py        moments at which all periodic tasks wake together
    trio_loop.py    Trio's sleep, which a serving loop may take over
    trio_world.py   the real sockets, threads and signals, which wait under Trio; only `cli` imports it
"""

"""The seam to the world.

Read in this order:

    seam.py         what the program asks of the world: clock, randomness, files, sockets, threads, signals, memory
    real_files.py   the real clock and files, also past the system's cache: all that a process which only builds needs
    memory.py       how much memory there is for mapped files, as the kernel tells it
    cores.py        how many processor cores there are
    small_file.py   small files that people write: settings, keys, users; how long they may be, and who may read them
    trio_loop.py    Trio's place of sleep, which a serving loop may take
    trio_world.py   the real sockets, threads and signals, which wait under Trio; `cli` alone imports it
"""

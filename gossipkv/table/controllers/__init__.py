"""Controllers: loops that move the state of this node towards the state that the maps want.

Read in this order:

    local_tables.py        what the controllers share
    supervisor.py          all controllers of one incarnation of the store, each a task
    reconciler.py          makes the local replicas match the maps
    move_step.py           the next step of a partition that moves, as a pure function
    migrator.py            asks the other hosts of partitions that move, and takes these steps
    rebalancer.py          begins and cancels moves
    plan.py                remembers the plan of one range table for the rebalancer
    splitter.py            divides ranges that are too large
    load_stats.py          measures sizes and request rates of local replicas
    write_stats.py         counts the writes of the last hour to time series
    abandoned_restores.py  drops hidden tables whose restore was killed
    smear_schedule.py      computes the times at which smeared puts are due
    smear_buffer.py        keeps smeared puts in the store, and forwards the ones that are due
    pause.py               the pause of a controller: short after news, and longer without
"""

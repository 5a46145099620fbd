"""Every setting: its default, unit, range and meaning, and the one way to load them all.

Read in this order:

    quantity.py     durations, sizes and rates as people write them
    setting.py      one setting as people see it, and how its text becomes what the program sees
    databases.py    what can be said of one database
    http.py, access.py, gossip.py, datasets.py, tables.py, serving.py    the settings; a part of a node takes its own
    config.py       those of the node itself; all of them, loaded from a file, the environment and flags
    masking.py, toml_lines.py    for messages: no secrets in them, and where in the file
"""

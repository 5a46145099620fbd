"""Every setting: its default, unit, range and meaning, and the one way to load all of them.

Read in this order:

    quantity.py     durations, sizes and rates as people write them
    setting.py      one setting: its description for people, and the parsing of its text
    databases.py    the settings of one database
    http.py, access.py, gossip.py, datasets.py, tables.py, serving.py    sections; a part of a node takes its own
    config.py       settings of the node itself, and the loading of all from a file, the environment and flags
    masking.py, toml_lines.py    for messages: removal of secrets, and line numbers in the file
"""

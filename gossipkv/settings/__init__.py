"""Every setting: its default, unit, range and meaning, and the one way to load all of them.

Read in this order:

    quantity.py        durations, sizes and rates as people write them
    setting.py         one setting: its description for people, and the parsing of its text
    nearest.py         the name that was probably meant, for errors
    masking.py         removal of secrets from messages
    toml_lines.py      the line of a name in the file, for messages
    node_variables.py  environment variables of client commands
    csv_dialect.py     how the fields of CSV are told apart
    databases.py       the settings of one database
    stores.py          places of stores and backups, and whose options reach them
    http.py            settings of HTTP
    access.py          settings of users and certificates
    gossip.py          settings of a node in the cluster
    datasets.py        settings of datasets
    tables.py          settings of tables
    serving.py         settings of serving
    config.py          settings of the node itself, and the loading of all from a file, the environment and flags
"""

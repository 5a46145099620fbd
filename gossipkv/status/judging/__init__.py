"""The judgement of all members' reports about themselves.

judge.py is the judging function; merging.py merges equal statements.  members.py judges members and nodes, datasets.py
one dataset, tables.py one table and the acceptors of the catalogue.
"""

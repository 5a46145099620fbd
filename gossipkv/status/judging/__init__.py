"""The judgement over what all members say of themselves.

judge.py      judges: the one function
merging.py    what several say, each thing once
members.py    of members and of each node itself
datasets.py   of one dataset: who serves what, what is to come, what is on too few nodes
tables.py     of one table, and of who decides on tables
"""

"""Which nodes hold a partition?  Pure functions, and what they are told apart by.

Read in this order:

    identity.py     what makes two copies of a version the same version
"""

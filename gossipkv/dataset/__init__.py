"""Immutable databases: what lies at a source root, how a version of it is built, kept and switched to."""

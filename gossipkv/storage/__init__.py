"""Bytes on disk: immutable sorted files and their builder, and the small checked documents beside them."""

"""The key space: pure functions from a key and a partition count to a partition number."""

"""Which partition is a key in?  Pure functions from a key and a partition count to a partition number."""

"""A sans-io session with a node, and the shells that move its bytes."""

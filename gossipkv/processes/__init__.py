"""Child processes: how they end with who started them."""

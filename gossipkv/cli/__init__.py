"""The `gossipkv` command."""

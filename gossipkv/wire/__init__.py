"""MessagePack-RPC: frames are bounded by a scanner before anything is decoded, then decoded per method."""

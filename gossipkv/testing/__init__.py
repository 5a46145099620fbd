"""The simulated world in which GossipKV is proven: files that fail, forget and tear; and the checkers."""

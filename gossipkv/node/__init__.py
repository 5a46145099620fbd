"""One process: the serving loop, the methods it hands to Python, and how it starts and stops."""

"""How are durations counted?  A histogram of fixed size, filled in C for each request, read in Python now and then."""

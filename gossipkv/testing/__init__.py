"""The simulated world: what tests pass where production passes the real one."""

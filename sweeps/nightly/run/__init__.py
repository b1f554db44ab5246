"""One night: its suite, its sweeps, what they were run with."""

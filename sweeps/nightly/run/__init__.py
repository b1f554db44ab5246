"""One night: its suite, its sweeps, and the identity they ran with."""

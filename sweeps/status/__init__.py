"""Progress and health of a running driver over HTTP, for scripts, monitoring and people."""

"""A driver one can watch: progress and health over HTTP, for scripts, monitoring and people."""

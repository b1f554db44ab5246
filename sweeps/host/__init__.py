"""This process and this machine: console, secrets, temporary directories, child processes."""

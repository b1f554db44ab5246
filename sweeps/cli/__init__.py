"""The subcommands of ``calsweep``: one module each, or one for a few related ones.

A module's ``add`` receives the subparsers, as do the callables of other packages in the
entry-point group ``calsweep.commands``. Slow imports happen only when a command runs.
"""

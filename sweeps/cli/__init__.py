"""The subcommands of ``calsweep``: a module each, or one for a few that belong together.

A module's ``add`` is given the subparsers, as are the callables of other packages in the
entry-point group ``calsweep.commands``. Modules here import what is slow to import only
when their command runs.
"""

"""``calsweep completion``: what a shell needs to complete commands, options, specs and sweeps.

The script that it prints asks ``calsweep`` itself at every Tab (argcomplete): commands of other
packages are completed too. Whatever is imported here slows each of these answers down.
"""

from __future__ import annotations

import argparse
import os

from rich.console import Console

from sweeps.cli.arguments import Subparsers

SHELLS = ("bash", "zsh", "fish")
_ASKED = "_ARGCOMPLETE"
"""The environment variable by which the shell says that it wants an answer."""


def add(commands: Subparsers) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "completion",
        help="print a script that completes calsweep's words in a shell",
        description='Completion of this shell: eval "$(calsweep completion bash)"; of every new '
        "one: that line in ~/.bashrc or ~/.zshrc, or for fish: calsweep completion fish > "
        "~/.config/fish/completions/calsweep.fish",
    )
    parser.add_argument("shell", choices=SHELLS)
    parser.set_defaults(command=_completion)


def _completion(options: argparse.Namespace, console: Console) -> int:
    from argcomplete.shell_integration import shellcode

    print(shellcode(["calsweep"], shell=options.shell))
    return 0


def answer(parser: argparse.ArgumentParser) -> None:
    """Answer the shell and end the process, if it was the shell that asked."""
    if _ASKED not in os.environ:
        return
    import argcomplete

    argcomplete.autocomplete(parser, always_complete_options=False)

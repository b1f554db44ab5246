"""``calsweep completion``: shell completion of commands, options, specs and sweeps.

The script that it prints calls ``calsweep`` itself at every Tab (argcomplete): commands of other
packages are completed too. Every import here slows these answers down.
"""

from __future__ import annotations

import argparse
import os

from rich.console import Console

from sweeps.cli.arguments import Subparsers

SHELLS = ("bash", "zsh", "fish")
_ASKED = "_ARGCOMPLETE"
"""The environment variable by which the shell requests completions."""


def add(commands: Subparsers) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "completion",
        help="print a completion script for a shell",
        description='For this shell: eval "$(calsweep completion bash)"; for every new one: '
        "add that line to ~/.bashrc or ~/.zshrc, or for fish: calsweep completion fish > "
        "~/.config/fish/completions/calsweep.fish",
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell")
    parser.set_defaults(command=_completion)


def _completion(options: argparse.Namespace, console: Console) -> int:
    from argcomplete.shell_integration import shellcode

    print(shellcode(["calsweep"], shell=options.shell))
    return 0


def answer(parser: argparse.ArgumentParser) -> None:
    """Answer the shell and exit, if the shell requested completions."""
    if _ASKED not in os.environ:
        return
    import argcomplete

    argcomplete.autocomplete(parser, always_complete_options=False)

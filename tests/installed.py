"""Calls the installed calsweep, one command after the other, in one process.

A program for the interpreter of another environment, whose ``calsweep`` must not be mixed with
this tree's: it imports nothing of the tests. It reads the commands from standard input and prints
the exit code and the output of each, and the file of every module of ours that they imported.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from typing import Any

from sweeps.cli.entry import main


def called(words: list[str]) -> dict[str, Any]:
    """What one command does, with its standard output and errors together."""
    sys.argv = ["calsweep", *words]
    output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            code = main()
        except SystemExit as ended:  # argparse
            code = int(ended.code or 0)
    output.seek(0)
    return {"code": code, "output": output.read()}


def files(packages: list[str]) -> dict[str, str]:
    """The file of every imported module of the packages."""
    found = dict(sys.modules)
    return {
        name: str(module.__file__)
        for name, module in found.items()
        if name.partition(".")[0] in packages
    }


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    results = [called(words) for words in asked["commands"]]
    print(json.dumps({"results": results, "files": files(asked["packages"])}))

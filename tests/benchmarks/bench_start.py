"""How long commands take that only look at something, beside Python and torch themselves.

    python -m tests.benchmarks.bench_start

Each is the best of five processes. What trains or computes nothing should not wait for torch.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.tiny import SPEC

TRIES = 5
HELP_LIMIT, REFUSAL_LIMIT, CHECK_LIMIT = 0.5, 0.5, 5.0
"""Of the time in which torch is imported."""
COMMANDS = {
    "--help": HELP_LIMIT,
    "posthoc junk.npz": REFUSAL_LIMIT,
    "metrics": None,
    "init --data rows.csv --target kind --out OUT": None,
    "check tiny.yaml": CHECK_LIMIT,
}


def main() -> int:
    """Print the table; 1 if a promise is not kept."""
    with tempfile.TemporaryDirectory(prefix="calsweep-bench-") as name:
        directory = Path(name)
        (directory / "tiny.yaml").write_text(SPEC)
        (directory / "junk.npz").write_text("junk")
        rows = "".join(f"{number / 7},{'ab'[number % 2]}\n" for number in range(60))
        (directory / "rows.csv").write_text(f"x,kind\n{rows}")
        bare, torch = _best(directory, "-c", "pass"), _best(directory, "-c", "import torch")
        print(f"\n{'python -c pass':50} {bare:6.2f} s\n{'import torch':50} {torch:6.2f} s")
        kept = [_line(directory, words, torch, limit) for words, limit in COMMANDS.items()]
    return 0 if all(kept) else 1


def _line(directory: Path, words: str, torch: float, limit: float | None) -> bool:
    seconds = _best(directory, "-m", "sweeps.cli", *words.split())
    kept = limit is None or seconds <= limit * torch
    promise = "" if limit is None else f"  at most {limit:g} ×: {'yes' if kept else 'NO'}"
    print(f"{'calsweep ' + words:50} {seconds:6.2f} s  {seconds / torch:5.2f} × torch{promise}")
    return kept


def _best(directory: Path, *arguments: str) -> float:
    def once(number: int) -> float:
        given = [word.replace("OUT", f"{number}.yaml") for word in arguments]
        began = time.perf_counter()
        subprocess.run([sys.executable, *given], cwd=directory, capture_output=True)
        return time.perf_counter() - began

    return min(map(once, range(TRIES)))


if __name__ == "__main__":
    sys.exit(main())

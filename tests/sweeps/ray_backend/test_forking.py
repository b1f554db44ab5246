"""Where workers may be forked from the driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.ray_backend.template import single_threaded
from sweeps.spec import load_spec

SPEC = """\
name: threads
datasets: [blobs-1.7]
methods:
  standard: {lr: 0.01}
  other: {method: standard, lr: 0.01ROW}
training: {epochs: 1ALL}
resources: {cpu: 2}
"""


@pytest.mark.parametrize(
    ("row", "everywhere", "safe"),
    [
        ("", "", True),
        (", training: {threads: 2}", "", False),
        ("", ", threads: 2", False),
    ],
)
def test_one_row_with_several_threads_keeps_all_workers_from_being_forked(
    tmp_path: Path, row: str, everywhere: str, safe: bool
) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC.replace("ROW", row).replace("ALL", everywhere))
    assert single_threaded(load_spec(path).spec) is safe

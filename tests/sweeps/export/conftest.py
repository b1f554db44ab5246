"""One store for all tests of exporting: its sweeps are run once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from sweeps.store import Store
from tests.exported import OWN_MODEL, OWN_PARTS, SEVERAL, TABLE, Swept, make_rows
from tests.trained import finish


@pytest.fixture(scope="session")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swept]:
    directory = tmp_path_factory.mktemp("export")
    make_rows(500, 0).to_csv(directory / "rows.csv", index=False)
    make_rows(300, 1).to_csv(directory / "test.csv", index=False)
    (directory / "own_model.py").write_text(OWN_MODEL)
    (directory / "own_parts.py").write_text(OWN_PARTS)
    before = list(sys.path)  # every model that is loaded adds its code
    sys.path.insert(0, str(directory))
    for name, text in {"table": TABLE, "several": SEVERAL}.items():
        (directory / f"{name}.yaml").write_text(text)
        finish(directory / f"{name}.yaml", Store(directory / "runs"))
    yield Swept(directory, pd.read_csv(directory / "test.csv").drop(columns="label"))
    sys.path[:] = before


@pytest.fixture(scope="session")
def winner(swept: Swept, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("winner") / "model"
    assert swept.export("table", out, "--coverage", "0.8") == 0
    return out

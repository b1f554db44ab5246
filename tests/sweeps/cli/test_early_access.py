"""A tracking server that refuses us says so at once, however long the data would take to read."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.cli.main import main
from tests.sweeps.nightly.report.test_webhook import server


@pytest.mark.parametrize("command", ["run", "nightly"])
def test_a_wrong_password_is_refused_before_data_are_read(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Large data take a minute to read, and these are not even there."""
    spec = (
        "datasets: [{name: table, path: absent.csv, target: y}]\nmethods: {standard: {lr: 0.1}}\n"
    )
    (tmp_path / "spec.yaml").write_text(f"name: early\n{spec}")
    (tmp_path / "suite.yaml").write_text("name: early\nsweeps: [spec.yaml]\n")
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "somebody")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "wrong")
    file = str(tmp_path / ("spec.yaml" if command == "run" else "suite.yaml"))
    with server(401) as (url, _):
        assert main([command, file, "--tracking", url.partition("/hooks")[0]]) == 2
    said = capsys.readouterr().err
    assert "requires authentication" in said
    assert "absent.csv" not in said
    assert main([command, file]) == 2
    assert "absent.csv" in capsys.readouterr().err

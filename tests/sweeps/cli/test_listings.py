"""``calsweep methods NAME`` and its kin, ``specs``, ``--version``; completion in a real bash."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from calibration.calibrators import CALIBRATORS
from calibration.data import DATASETS
from calibration.learners import LEARNERS
from calibration.methods import METHODS
from calibration.metrics import METRICS
from calibration.models import MODELS
from calibration.registry import Registry
from sweeps.cli.entry_view import paragraphs, print_entry
from sweeps.cli.main import main
from sweeps.search import SAMPLERS
from sweeps.specs import SPECS, ready_names, ready_specs

ROOT = Path(__file__).parents[3]
REGISTRIES = {
    "methods": METHODS,
    "datasets": DATASETS,
    "models": MODELS,
    "calibrators": CALIBRATORS,
    "metrics": METRICS,
    "samplers": SAMPLERS,
}
UNPUBLISHED = {
    *("standard", "logistic_regression", "identity"),  # older than any one publication
    *("error", "accuracy", "base_rate", "overconfidence", "mce_count"),
    *("true_ce", "posterior_gap"),  # our own, defined on their pages
    *("multi_objective",),
}
"""Methods, calibrators and metrics whose page names no publication."""
SIDE = "whole number ≥ 1 ≤ 4096"


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 0
    return capsys.readouterr().out


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert capsys.readouterr().out == f"calsweep {project['version']}\n"


@pytest.mark.parametrize(("kind", "registry"), [*REGISTRIES.items(), ("methods", LEARNERS)])
def test_everything_registered_is_described(
    kind: str,
    registry: Registry[object],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    for name in registry:
        text = said(capsys, kind, name)
        assert text.startswith(f"{name} ({registry.kind})\n")
        assert getattr(registry[name], "description", "") in text
        assert "\nsource " in text
        settings = getattr(registry[name], "Hyperparameters", registry[name])
        lines = [line.split() for line in text.splitlines()]
        for setting in getattr(settings, "model_fields", {}):
            found = [line for line in lines if line[:1] == [setting]]
            assert found, (name, setting)
            words = {word for line in found for word in line}
            assert not {"None", "Optional", "Union", "Path", "tuple"} & words, (name, found)


def test_a_methods_page_has_equation_defaults_bounds_space_and_version(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = said(capsys, "methods", "focal")
    assert "L = −α_y (1 − p_y)^γ log p_y" in text
    (gamma,) = (line for line in text.splitlines() if line.split()[:1] == ["gamma"])
    assert gamma.split() == ["gamma", "2", "number", "≥", "0", "≤", "20", "[0,", "5]"]
    assert "gamma: how strongly" in text
    assert "lr: the learning rate" in text
    assert "calibration.methods.focal:Focal" in text
    assert f"version             {METHODS['focal'].version}\n" in text


@pytest.mark.parametrize(
    ("kind", "name", "setting", "values"),
    [
        ("models", "mlp", "widths", "[whole number ≥ 1, …]"),
        ("models", "small_cnn", "channels", "[whole number ≥ 1, …]"),
        ("datasets", "table", "drop", "[text, …]"),
        ("datasets", "image_folder", "size", f"{SIDE} | [{SIDE}, {SIDE}]"),
    ],
)
def test_the_values_of_a_list_are_shown(kind: str, name: str, setting: str, values: str) -> None:
    """By any console: one that reads markup, as the documentation's, takes [text, …] for a tag."""
    printed = io.StringIO()
    registry = REGISTRIES[kind]
    print_entry(registry.kind, name, registry[name], Console(file=printed, width=300))
    lines = printed.getvalue().splitlines()
    (line,) = (line for line in lines if line.split()[:1] == [setting] and "  " in line.strip())
    assert line.rstrip().endswith(values)


@pytest.mark.parametrize(("kind", "registry"), [*REGISTRIES.items(), ("methods", LEARNERS)])
def test_no_paragraph_is_printed_twice(
    kind: str,
    registry: Registry[object],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "2000")
    for name in registry:
        lines = [line for line in said(capsys, kind, name).splitlines() if line.strip()]
        assert len(lines) == len(set(lines)), (name, lines)


@pytest.mark.parametrize(
    ("kind", "registry"),
    [
        ("methods", LEARNERS),
        *((kind, REGISTRIES[kind]) for kind in ("methods", "calibrators", "metrics")),
    ],
)
def test_a_page_names_the_publication(
    kind: str, registry: Registry[object], capsys: pytest.CaptureFixture[str]
) -> None:
    found = {name: said(capsys, kind, name) for name in registry if name not in UNPUBLISHED}
    publication = re.compile(r"\b(18|19|20)\d\d\b|\bMeta-Regularization\b")
    assert [name for name, text in found.items() if not publication.search(text)] == []


def test_a_page_has_the_equation_of_the_methods_objective(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = " ".join(said(capsys, "methods", "mmce").split())
    assert "L = base + β·MMCE" in text
    assert "over all pairs of (c_i − r_i)(c_j − r_j) exp(−|r_i − r_j|/0.4)." in text


def test_a_metric_with_the_name_of_a_module_has_its_own_page(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = said(capsys, "metrics", "refinement")
    assert "min over β ≥ 0" in text
    assert "ValueError" not in text


def test_an_unknown_name_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", "focl"]) == 2
    assert "unknown method 'focl'; did you mean 'focal'" in capsys.readouterr().err
    assert main(["specs", "survay"]) == 2
    assert "no bundled spec 'survay'; did you mean 'survey'?" in capsys.readouterr().err


def test_ready_specs_are_listed_and_printed_as_they_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = said(capsys, "specs")
    assert [line.split()[0] for line in table.splitlines() if line[:1].strip()][1:-1] == (
        ready_names()
    )
    for name, path in zip(ready_names(), ready_specs(), strict=True):
        assert path == SPECS / f"{name}.yaml"
        assert said(capsys, "specs", name) == path.read_text()
        assert yaml.safe_load(path.read_text())["name"]


def test_docstrings_are_filled_and_keep_their_lists_and_examples() -> None:
    text = """One.

    Two lines
    of ``code``:

    - an item
      of two lines
    - another

    >>> f(1)
    2
    """
    expected = ["One.", "Two lines of code:", "- an item of two lines\n- another", ">>> f(1)\n2"]
    assert paragraphs(text) == expected


@pytest.mark.slow
def test_a_real_bash_completes_commands_options_specs_sweeps_and_names(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").touch()
    (tmp_path / "runs" / "my-sweep").mkdir(parents=True)
    (tmp_path / "runs" / "my-sweep" / "spec.yaml").touch()
    (tmp_path / "elsewhere" / "yours").mkdir(parents=True)
    (tmp_path / "elsewhere" / "yours" / "spec.yaml").touch()
    programs = tmp_path / "programs"
    programs.mkdir()
    command = programs / "calsweep"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m sweeps.cli "$@"\n')
    command.chmod(0o755)
    expected = {
        "calsweep comp": {"compare", "completion"},
        "calsweep submi": {"submit"},  # of a plug-in
        "calsweep report --ba": {"--baseline"},
        "calsweep report --format p": {"parquet"},
        "calsweep run surv": {"survey"},
        "calsweep run mi": {"mine.yaml"},
        "calsweep report my": {"my-sweep"},
        "calsweep report --store elsewhere y": {"yours"},
        "calsweep specs qui": {"quickstart"},
        "calsweep metrics ec": {"ece"},
    }
    asked = "".join(f"ask {line!r}\n" for line in expected)
    script = f"""
    source <(calsweep completion bash)
    ask() {{
      COMP_LINE=$1 COMP_POINT=${{#1}} COMP_TYPE=9 COMP_WORDS=($1)
      COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 )) COMPREPLY=()
      _python_argcomplete calsweep
      echo "${{COMPREPLY[*]}}"
    }}
    {asked}"""
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run(
        [bash, "--norc", "-c", script],
        cwd=tmp_path,
        env=os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = [set(line.split()) for line in done.stdout.splitlines()]
    assert dict(zip(expected, found, strict=True)) == expected


def test_every_shell_gets_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert "complete " in said(capsys, "completion", "bash")
    assert "compdef" in said(capsys, "completion", "zsh")
    assert "complete --command calsweep" in said(capsys, "completion", "fish")

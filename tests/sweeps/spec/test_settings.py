"""Every setting of a spec, as ``calsweep check`` shows it."""

from __future__ import annotations

from pathlib import Path

from calibration.data import Protocol
from calibration.training_config import TrainingConfig
from sweeps.search.config import SchedulerConfig, SearchConfig
from sweeps.spec import load_spec
from sweeps.spec.schema import Resources, Spec, Tracking
from sweeps.spec.settings import Setting, settings


def shown(tmp_path: Path, further: str) -> dict[str, Setting]:
    path = tmp_path / "sweep.yaml"
    path.write_text(f"name: small\ndatasets: [iris]\nmethods: [standard]\n{further}")
    loaded = load_spec(path)
    return {setting.field: setting for setting in settings(loaded.spec, loaded.written)}


def test_every_field_is_there_once_and_says_what_it_is(tmp_path: Path) -> None:
    found = shown(tmp_path, "")
    nested = {
        "training": TrainingConfig,
        "search": SearchConfig,
        "scheduler": SchedulerConfig,
        "resources": Resources,
        "tracking": Tracking,
        "protocol": Protocol,
    }
    expected = {f"{name}.{field}" for name in nested for field in nested[name].model_fields}
    expected |= set(Spec.model_fields) - set(nested) - {"datasets", "methods", "table"}
    assert {name for name in found if not name.startswith("model.")} == expected
    assert {"model.widths", "model.dropout"} <= found.keys()
    assert all(setting.description and setting.value for setting in found.values())


def test_written_values_are_told_from_defaults(tmp_path: Path) -> None:
    text = "training: {epochs: 100, patience: 7}\nscheduler: asha\nprotocol: bo4sc\nseed: 0"
    found = shown(tmp_path, text)
    written = {name for name, setting in found.items() if not setting.default}
    assert {"name", "training.epochs", "training.patience", "scheduler.name", "seed"} <= written
    assert {"protocol.name", "protocol.validation", "protocol.share_validation"} <= written
    assert not written & {"training.decay", "scheduler.grace", "bins", "search.trials"}
    assert found["protocol.validation"].value == "0.3"


def test_units_and_the_meaning_of_nothing_written(tmp_path: Path) -> None:
    found = shown(tmp_path, "search: {time: 2m}\nseed: 4\nmodel: {name: mlp, widths: [8, 4]}")
    assert found["search.time"][1:4] == ("120", "seconds", False)
    assert found["search.trials"].value == "none"
    assert found["search.seed"].value == "4"
    assert found["tracking.experiment"].value == "small"
    assert found["time_limit"][1:4] == ("none", "", True)
    assert found["resources.cpu"][1:4] == ("1", "CPUs", True)
    assert found["model"].value == "mlp"
    assert found["model.widths"][1:4] == ("8, 4", "", False)
    alone = shown(tmp_path, "")
    assert alone["search.trials"][1:4] == ("12", "trials per method and dataset", True)
    assert alone["search.objective"].value == "nll"
    grid = shown(tmp_path, "search: {sampler: grid, objective: [error, ece]}")
    assert grid["search.trials"].value == "as many as the grid has"
    assert grid["search.objective"].value == "error, ece"

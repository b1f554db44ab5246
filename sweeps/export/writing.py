"""The model's directory, written atomically."""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch

from calibration.calibrators.saving import save_calibrator
from calibration.deployment import BACKBONE, DESCRIPTION, NETWORK, SAVED_CALIBRATOR
from calibration.leftovers import remove_leftovers
from sweeps.errors import UserError
from sweeps.export.card import card
from sweeps.export.package import Package
from sweeps.export.signature import example, signature
from sweeps.host.scratch import directory_in
from sweeps.tracking.mlflow.settings import mlflow_settings

CARD = "README.md"
_DRAFT = ".calsweep-export-"
CODE = Path(__file__).with_name("pyfunc_model.py")


def check_place(out: Path) -> None:
    """Raise ``UserError`` unless a model can be put at ``out``: nothing, or an empty directory."""
    if out.is_dir() and not any(out.iterdir()):
        return
    if out.exists() or out.is_symlink():
        raise UserError(f"--out: {out} already exists; name a new or an empty directory")


def write(package: Package, out: Path) -> None:
    """Write the MLflow model and its card to ``out``, atomically.

    Raises ``UserError`` if ``out`` is not empty or cannot be written.
    """
    check_place(out)
    place = out.absolute()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(place.parent, _DRAFT)
        with directory_in(place.parent, _DRAFT) as scratch:
            model = scratch / "model"
            _save(package, scratch / "artifacts", model)
            (model / CARD).write_text(card(package, out), encoding="utf-8")
            model.rename(place)
    except OSError as error:
        raise UserError(f"--out: {out} cannot be written: {error}") from error


@mlflow_settings()
def _save(package: Package, artifacts: Path, model: Path) -> None:
    from mlflow.pyfunc import save_model

    artifacts.mkdir()
    description = package.description
    saved = {
        DESCRIPTION: json.dumps(description.model_dump(mode="json"), indent=1, ensure_ascii=False),
        SAVED_CALIBRATOR: json.dumps(_saved_calibrator(package)),
    }
    for name, text in saved.items():
        (artifacts / name).write_text(text + "\n", encoding="utf-8")
    if description.estimator is None:
        torch.save(package.model, artifacts / NETWORK)
        models = {"network": NETWORK}
    else:
        models = {name: name for name in package.model}
        for name, content in package.model.items():
            (artifacts / name).write_bytes(content)
    encoder = package.classifier.encoder
    if encoder is not None:
        (artifacts / BACKBONE).mkdir()
        encoder.save(artifacts / BACKBONE)
        models[BACKBONE] = BACKBONE
    about = description.about
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    save_model(
        path=str(model),
        python_model=str(CODE),
        artifacts={
            "model": str(artifacts / DESCRIPTION),
            **{part: str(artifacts / name) for part, name in models.items()},
            "calibrator": str(artifacts / SAVED_CALIBRATOR),
        },
        code_paths=[str(path) for path in package.code.code],
        pip_requirements=package.code.requirements,
        signature=signature(description),
        input_example=example(description),
        metadata={f"calsweep.{name}": about[name] for name in ("sweep", "dataset", "row", "key")},
    )
    _forget_origin(model)


def _saved_calibrator(package: Package) -> dict[str, object]:
    try:
        return save_calibrator(package.classifier.calibrator)
    except ValueError as error:
        raise UserError(f"calibrator {package.chosen.calibrator!r}: {error}") from error


def _forget_origin(model: Path) -> None:
    """Remove this machine's paths from ``MLmodel``; loading it needs none of them."""
    from mlflow.models import Model

    saved = Model.load(str(model))
    flavour = saved.flavors["python_function"]
    flavour["model_code_path"] = CODE.name
    for artifact in flavour["artifacts"].values():
        artifact["uri"] = artifact["path"]
    saved.save(str(model / "MLmodel"))

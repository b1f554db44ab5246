"""``calsweep posthoc`` and ``calsweep apply``: post-hoc maps on one's own stored predictions."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from sweeps.cli.arguments import Subparsers
from sweeps.errors import UserError
from sweeps.host.console import say

if TYPE_CHECKING:
    from torch import Tensor

    from calibration.calibrators import Calibrator
    from calibration.data.predictions import StoredPredictions
    from sweeps.posthoc import StoredEvaluation

_MANY_CLASSES = 1000
"""Up to here the maps that are called fast are."""
_FILES = (
    "NPZ with 'logits' or 'probs' and 'labels', or CSV or Parquet with a column of labels and "
    "columns logit_CLASS or prob_CLASS"
)


def add(commands: Subparsers) -> None:
    """Add the commands."""
    posthoc = commands.add_parser(
        "posthoc", help="compare post-hoc maps on your own stored predictions"
    )
    posthoc.add_argument("validation", type=Path, metavar="VAL", help=f"to fit on: {_FILES}")
    posthoc.add_argument(
        "test",
        type=Path,
        nargs="?",
        metavar="TEST",
        help="to measure on (without it maps are cross-fitted on VAL)",
    )
    posthoc.add_argument(
        "--maps", default="fast", help="fast, all, or names with commas (default: fast)"
    )
    posthoc.add_argument("--bins", type=_count, default=15, help="bins of ECE (default: 15)")
    posthoc.add_argument("--label", metavar="COLUMN", help="the column of labels in a table")
    posthoc.add_argument("--seed", type=int, default=0, help="of folds and resamples")
    posthoc.add_argument(
        "--out", type=Path, default=Path("posthoc"), metavar="DIR", help="(default: posthoc)"
    )
    posthoc.add_argument(
        "--save", type=Path, metavar="FILE", help="save the best map, e.g. best.json"
    )
    posthoc.set_defaults(command=_posthoc)
    apply = commands.add_parser("apply", help="apply a saved map to stored predictions")
    apply.add_argument("map", type=Path, metavar="MAP", help="what posthoc --save wrote")
    apply.add_argument("file", type=Path, metavar="FILE", help=f"{_FILES}; labels are ignored")
    apply.add_argument(
        "--out", type=Path, required=True, metavar="OUT", help="an .npz, .csv or .parquet file"
    )
    apply.add_argument("--label", metavar="COLUMN", help="the column of labels in a table")
    apply.set_defaults(command=_apply)


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 100_000:
        raise argparse.ArgumentTypeError(f"found {text!r}; write a number, e.g. 15")
    return int(text)


def _posthoc(options: argparse.Namespace, console: Console) -> int:
    try:
        validation, test = _read(options)
        maps = _maps(options.maps)
        _check_places(options)
        from sweeps.posthoc import evaluate_stored
        from sweeps.posthoc.evaluation import notes_on

        say(console, *notes_on(validation, test))
        if options.maps == "fast" and validation.classes > _MANY_CLASSES:
            maps, note = _without_maps_per_class(maps, validation.classes)
            say(console, note)
        evaluation = evaluate_stored(validation, test, maps, bins=options.bins, seed=options.seed)
        written = _write(evaluation, options)
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error
    from sweeps.posthoc.terminal import print_evaluation

    print_evaluation(evaluation, console)
    for name, reason in evaluation.failed.items():
        say(console, f"post-hoc map {name} failed and has no row: {reason}")
    say(console, *written)
    return 1 if evaluation.failed else 0


def _read(options: argparse.Namespace) -> tuple[StoredPredictions, StoredPredictions | None]:
    from calibration.data.predictions import check_same_classes, read_labelled_predictions

    validation, test = read_labelled_predictions(options.validation, label=options.label)
    if options.test is None:
        return validation, test
    if test is not None:
        raise ValueError(
            f"{options.validation}: holds a test set already; leave {options.test} out"
        )
    test, second = read_labelled_predictions(options.test, label=options.label)
    if second is not None:
        raise ValueError(f"{options.test}: holds two sets; a test file has one")
    check_same_classes(validation, test, str(options.validation), str(options.test))
    return validation, test


def _maps(wanted: str) -> list[str]:
    from calibration.calibrators import CALIBRATORS, Calibrator, names

    if wanted == "fast" or wanted == "all":
        return names("fast" if wanted == "fast" else "all")
    chosen = [name.strip() for name in wanted.split(",") if name.strip()]
    if not chosen:
        raise ValueError(f"--maps: found {wanted!r}; write fast, all, or names with commas")
    for name in chosen:
        kind = CALIBRATORS[name]
        if not (isinstance(kind, type) and issubclass(kind, Calibrator)):
            raise ValueError(f"--maps: {name!r} is not a subclass of Calibrator")
    return chosen


def _without_maps_per_class(maps: list[str], classes: int) -> tuple[list[str], str]:
    """The maps that stay fast with many classes, and what to say of the others."""
    from calibration.calibrators import CALIBRATORS
    from calibration.calibrators.one_vs_rest import OneVsRest

    slow = [name for name in maps if issubclass(CALIBRATORS[name], OneVsRest)]
    note = (
        f"{classes} classes: left out, because each class is fitted by itself: {', '.join(slow)}; "
        "to have one of them, name it in --maps"
    )
    return [name for name in maps if name not in slow], note


def _check_places(options: argparse.Namespace) -> None:
    """Before the work, not after it: results must have somewhere to go."""
    if options.out.exists() and not options.out.is_dir():
        raise ValueError(f"--out: {options.out} is a file; name a directory")
    if options.save is not None and options.save.is_dir():
        raise ValueError(f"--save: {options.save} is a directory; name a file, e.g. best.json")


def _write(evaluation: StoredEvaluation, options: argparse.Namespace) -> list[str]:
    from sweeps.posthoc.files import saved_winner, write_whole
    from sweeps.posthoc.page import evaluation_page
    from sweeps.report.csv_table import csv

    # The saved map first: if it cannot be written, nothing is.
    content = {} if options.save is None else {options.save: saved_winner(evaluation)}
    content |= {
        options.out / "report.html": evaluation_page(evaluation).encode(),
        options.out / "results.csv": csv(evaluation.results),
        options.out / "leaderboard.csv": csv(evaluation.leaderboard),
        options.out / "comparisons.csv": csv(evaluation.comparisons),
    }
    for path, data in content.items():
        write_whole(path, data)
    lines = [f"report    {options.out / 'report.html'}"]
    if options.save is not None:
        lines.append(
            f"best map  {evaluation.winner}, saved: calsweep apply {options.save} FILE --out OUT"
        )
    return lines


def _apply(options: argparse.Namespace, console: Console) -> int:
    from calibration.data.predictions import read_predictions
    from sweeps.posthoc.files import OUTPUTS, applied, read_map, write_whole

    try:
        suffix = options.out.suffix.lower()
        if suffix not in OUTPUTS or options.out.is_dir():
            raise ValueError(f"--out: found {options.out}; name a file *{', *'.join(OUTPUTS)}")
        calibrator, names = read_map(options.map)
        stored = read_predictions(options.file, label=options.label)
        _check_fit(options, stored, calibrator._classes or 0, names)
        output = _output(calibrator, stored, options.map)
        write_whole(options.out, applied(output, stored, suffix))
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error
    kind = "probabilities" if output.ndim == 2 else "confidences of the predicted class"
    say(console, *stored.notes, f"{len(output)} rows of {kind}: {options.out}")
    return 0


def _output(calibrator: Calibrator, stored: StoredPredictions, path: Path) -> Tensor:
    import torch

    try:
        return calibrator(torch.from_numpy(stored.logits))
    except Exception as error:  # a damaged map, or a user's own
        raise ValueError(f"{path}: fails on {stored.name}: {error}") from error


def _check_fit(
    options: argparse.Namespace,
    stored: StoredPredictions,
    classes: int,
    names: tuple[str, ...] | None,
) -> None:
    from calibration.data.predictions import names_differ

    if stored.classes != classes:
        raise ValueError(
            f"{options.file} has {stored.classes} classes, but the map in {options.map} was "
            f"fitted with {classes}"
        )
    if names is not None and names_differ(names, stored.class_names) is not None:
        raise ValueError(
            f"{options.file}: the classes are {', '.join(stored.class_names[:10])}, but the map "
            f"in {options.map} was fitted with {', '.join(names[:10])}, in this order"
        )

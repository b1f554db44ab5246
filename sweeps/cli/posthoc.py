"""``calsweep posthoc`` and ``calsweep apply``: calibrators on your own predictions."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from calibration.text import count
from sweeps.cli.arguments import Subparsers
from sweeps.errors import UserError
from sweeps.host.console import say

if TYPE_CHECKING:
    from torch import Tensor

    from calibration.data.prediction_files import Reading
    from calibration.data.predictions import StoredPredictions
    from sweeps.posthoc import StoredEvaluation
    from sweeps.posthoc.files import SavedCalibrator

_MANY_CLASSES = 1000
"""Up to this many classes, the calibrators in 'fast' are fast."""
_FILES = (
    "NPZ with 'logits' or 'probs' and 'labels', or CSV or Parquet with a column of labels and "
    "columns logit_CLASS or prob_CLASS; for two classes one score is enough (--score-kind, "
    "--positive)"
)


def add(commands: Subparsers) -> None:
    """Add the commands."""
    posthoc = commands.add_parser(
        "posthoc", help="compare calibrators on your own stored predictions"
    )
    posthoc.add_argument("validation", type=Path, metavar="VAL", help=f"to fit on: {_FILES}")
    posthoc.add_argument(
        "test",
        type=Path,
        nargs="?",
        metavar="TEST",
        help="to measure on (without it calibrators are cross-fitted on VAL)",
    )
    posthoc.add_argument(
        "--calibrators",
        default="fast",
        help="fast, all, or comma-separated names (default: fast)",
    )
    posthoc.add_argument(
        "--bins", type=_count, default=15, help="number of bins of ECE (default: 15)"
    )
    _add_reading(posthoc)
    posthoc.add_argument(
        "--missing-labels",
        choices=("refuse", "drop"),
        default="refuse",
        help="what to do with rows without a label (default: refuse)",
    )
    posthoc.add_argument(
        "--weights", metavar="NAME", help="the column or array with the weight of each row"
    )
    posthoc.add_argument(
        "--group",
        metavar="NAME",
        help="the column or array with the group of each row (a customer, a patient): groups are "
        "cross-fitted and resampled as wholes",
    )
    posthoc.add_argument("--seed", type=_seed, default=0, help="seed of the folds and resamples")
    posthoc.add_argument(
        "--out",
        type=Path,
        default=Path("posthoc"),
        metavar="DIR",
        help="the directory of the report (default: posthoc)",
    )
    posthoc.add_argument(
        "--save", type=Path, metavar="FILE", help="save the best calibrator, e.g. best.json"
    )
    _add_prior(posthoc, "that apply will correct for; requires --save and changes no figure here")
    posthoc.set_defaults(command=_posthoc)
    apply = commands.add_parser("apply", help="apply a saved calibrator to stored predictions")
    apply.add_argument(
        "map", type=Path, metavar="CALIBRATOR", help="the file written by posthoc --save"
    )
    apply.add_argument("file", type=Path, metavar="FILE", help=f"{_FILES}; labels are ignored")
    apply.add_argument(
        "--out", type=Path, required=True, metavar="OUT", help="an .npz, .csv or .parquet file"
    )
    _add_reading(apply)
    _add_prior(apply, "to which the probabilities are corrected")
    apply.set_defaults(command=_apply)


def _add_reading(command: argparse.ArgumentParser) -> None:
    """Add the options for what a file does not say itself."""
    command.add_argument("--label", metavar="COLUMN", help="the column of labels in a table")
    command.add_argument(
        "--score", metavar="NAME", help="the column or array with one score per row"
    )
    command.add_argument(
        "--score-kind", choices=("probability", "logit"), help="the kind of the single score"
    )
    command.add_argument(
        "--positive", metavar="CLASS", help="the class that the single score refers to"
    )


def _add_prior(command: argparse.ArgumentParser, purpose: str) -> None:
    command.add_argument(
        "--prior",
        metavar="CLASS=SHARE",
        help="class frequencies in deployment, e.g. fraud=0.002 (several separated by commas), "
        + purpose,
    )


def _reading(options: argparse.Namespace, saved: SavedCalibrator | None = None) -> Reading:
    """How to read the files, by the options or else by the saved calibrator."""
    from calibration.data.prediction_files import Reading

    how = Reading(
        label=options.label,
        score=options.score,
        kind=options.score_kind,
        positive=options.positive,
    )
    if saved is not None:
        return replace(how, remembered=saved.score, classes=saved.class_names, aside=saved.aside)
    drop = options.missing_labels == "drop"
    return replace(how, drop_unlabelled=drop, weight=options.weights, group=options.group)


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 100_000:
        raise argparse.ArgumentTypeError(f"found {text!r}; write a whole number up to 100000")
    return int(text)


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**31:
        raise argparse.ArgumentTypeError(f"found {text!r}; write a whole number up to {2**31 - 1}")
    return int(text)


def _posthoc(options: argparse.Namespace, console: Console) -> int:
    try:
        validation, test = _read(options)
        calibrators = _calibrators(options.calibrators)
        _check_places(options)
        prior = _prior(options, validation)
        from sweeps.posthoc import evaluate_stored
        from sweeps.posthoc.evaluation import notes_on

        left_out = []
        if options.calibrators == "fast" and validation.classes > _MANY_CLASSES:
            calibrators, note = _without_maps_per_class(calibrators, validation.classes)
            left_out.append(note)
        say(console, *notes_on(validation, test, calibrators), *left_out)
        evaluation = evaluate_stored(
            validation, test, calibrators, bins=options.bins, seed=options.seed
        )
        written = _write(evaluation, options, prior)
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error
    from sweeps.posthoc.terminal import print_evaluation

    print_evaluation(evaluation, console)
    for name, reason in evaluation.failed.items():
        say(console, f"calibrator {name} failed and has no row: {reason}")
    say(console, *written)
    return 1 if evaluation.failed else 0


def _read(options: argparse.Namespace) -> tuple[StoredPredictions, StoredPredictions | None]:
    from calibration.data.predictions import check_both, read_labelled_predictions

    reading = _reading(options)
    validation, test = read_labelled_predictions(options.validation, reading)
    if options.test is None:
        return validation, test
    if test is not None:
        raise ValueError(
            f"{options.validation} already contains a test set; leave {options.test} out"
        )
    test, second = read_labelled_predictions(options.test, reading)
    if second is not None:
        raise ValueError(f"{options.test} contains two sets; a test file has one")
    check_both(validation, test, str(options.validation), str(options.test))
    return validation, test


def _calibrators(wanted: str) -> list[str]:
    from calibration.calibrators import CALIBRATORS, Calibrator, names

    if wanted == "fast" or wanted == "all":
        return names("fast" if wanted == "fast" else "all")
    chosen = [name.strip() for name in wanted.split(",") if name.strip()]
    if not chosen:
        raise ValueError(
            f"--calibrators: found {wanted!r}; write fast, all, or comma-separated names"
        )
    for name in chosen:
        kind = CALIBRATORS[name]
        if not (isinstance(kind, type) and issubclass(kind, Calibrator)):
            raise ValueError(f"--calibrators: {name!r} is not a subclass of Calibrator")
    return chosen


def _without_maps_per_class(calibrators: list[str], classes: int) -> tuple[list[str], str]:
    """The calibrators that stay fast with many classes, and a note on the others."""
    from calibration.calibrators import CALIBRATORS
    from calibration.calibrators.one_vs_rest import OneVsRest

    slow = [name for name in calibrators if issubclass(CALIBRATORS[name], OneVsRest)]
    note = (
        f"{classes} classes: left out, because each class is fitted separately: {', '.join(slow)}; "
        "to include one of them, name it in --calibrators"
    )
    return [name for name in calibrators if name not in slow], note


def _check_places(options: argparse.Namespace) -> None:
    """Check before the work that the results can be written."""
    if options.out.exists() and not options.out.is_dir():
        raise ValueError(f"--out: {options.out} is a file; name a directory")
    if options.prior is not None and options.save is None:
        raise ValueError(
            "--prior: only apply corrects its output, from a saved calibrator; add --save FILE"
        )
    if options.save is not None and options.save.is_dir():
        raise ValueError(f"--save: {options.save} is a directory; name a file, e.g. best.json")


def _prior(options: argparse.Namespace, validation: StoredPredictions) -> dict[str, float] | None:
    """The deployment prior to save, if one is given and can be used."""
    from calibration.metrics.rare import class_shares
    from calibration.prior import deployment_prior, parsed_prior

    if options.prior is None or validation.labels is None:
        return None
    import torch

    wanted = parsed_prior(options.prior)
    weights = None if validation.weights is None else torch.from_numpy(validation.weights)
    shares = class_shares(torch.from_numpy(validation.labels), validation.classes, weights)
    deployment_prior(wanted, validation.class_names, shares)
    return wanted


def _write(
    evaluation: StoredEvaluation, options: argparse.Namespace, prior: dict[str, float] | None
) -> list[str]:
    from sweeps.posthoc.files import saved_winner, write_whole
    from sweeps.posthoc.page import evaluation_page
    from sweeps.report.csv_table import csv

    # The saved calibrator first: if it cannot be written, nothing is.
    content = {} if options.save is None else {options.save: saved_winner(evaluation, prior)}
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
            f"best calibrator  {evaluation.winner}, "
            f"saved: calsweep apply {options.save} FILE --out OUT"
        )
    if prior is not None:
        lines.append(
            f"prior     {options.prior}: apply will correct for it; the figures above are for "
            "the class frequencies in the file, and are not corrected"
        )
    return lines


def _apply(options: argparse.Namespace, console: Console) -> int:
    from calibration.data.predictions import read_predictions
    from calibration.prior import parsed_prior
    from sweeps.posthoc.files import OUTPUTS, applied, read_calibrator, write_whole
    from sweeps.posthoc.wording import correction, kept_note

    try:
        suffix = options.out.suffix.lower()
        if suffix not in OUTPUTS or options.out.is_dir():
            raise ValueError(f"--out: found {options.out}; name a file *{', *'.join(OUTPUTS)}")
        saved = read_calibrator(options.map)
        wanted = None if options.prior is None else parsed_prior(options.prior)
        prior = saved.prior_for(wanted)
        stored = read_predictions(options.file, _reading(options, saved))
        _check_fit(options, stored, saved)
        output = _output(saved, stored)
        output = output if prior is None else prior.corrected(output)
        write_whole(options.out, applied(output, stored, suffix))
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error
    kind = "probabilities" if output.ndim == 2 else "confidences of the predicted class"
    say(console, *stored.notes, *kept_note(stored))
    if prior is not None:
        say(console, correction(prior, stored.class_names))
    say(console, f"{count(len(output), 'row')} of {kind}: {options.out}")
    return 0


def _output(saved: SavedCalibrator, stored: StoredPredictions) -> Tensor:
    import torch

    try:
        return saved.calibrator(torch.from_numpy(stored.logits))
    except Exception as error:  # a damaged calibrator, or a user's own
        raise ValueError(f"{saved.path} fails on {stored.name}: {error}") from error


def _check_fit(
    options: argparse.Namespace, stored: StoredPredictions, saved: SavedCalibrator
) -> None:
    from calibration.data.predictions import names_differ

    classes, names = saved.calibrator._classes or 0, saved.class_names
    if stored.classes != classes:
        raise ValueError(
            f"{options.file} has {stored.classes} classes, but the calibrator in {options.map} was "
            f"fitted with {classes}"
        )
    if names is not None and names_differ(names, stored.class_names) is not None:
        raise ValueError(
            f"{options.file}: the classes are {', '.join(stored.class_names[:10])}, "
            "but the calibrator "
            f"in {options.map} was fitted with {', '.join(names[:10])}, in this order"
        )

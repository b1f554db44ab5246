"""``calsweep export``."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from rich.console import Console

from sweeps.cli.arguments import Subparsers, add_store, add_sweep, opened
from sweeps.errors import UserError
from sweeps.host.console import complain, say


def add(commands: Subparsers) -> None:
    """Add the command."""
    export = commands.add_parser(
        "export", help="write a sweep's winner as an MLflow model, with its model card"
    )
    add_sweep(export)
    export.add_argument("--out", type=Path, required=True, metavar="DIR", help="a new directory")
    export.add_argument("--dataset", metavar="NAME", help="required if the sweep has several")
    threshold = export.add_mutually_exclusive_group()
    threshold.add_argument(
        "--accuracy",
        type=_share,
        metavar="A",
        help="abstain so that, with 95 %% confidence, at least the share A of the accepted rows is "
        "classified correctly",
    )
    threshold.add_argument(
        "--coverage",
        type=_share,
        metavar="C",
        help="accept at least the share C of the validation rows, more only if their "
        "confidences are tied, and abstain on the others",
    )
    export.add_argument(
        "--row", metavar="ROW", help='a row other than the winner, e.g. "focal + temperature"'
    )
    export.add_argument(
        "--seed", type=int, help="the network of this seed (default: the row's best)"
    )
    export.add_argument(
        "--prior",
        metavar="CLASS=SHARE",
        help="class frequencies in deployment, e.g. fraud=0.002 (several separated by commas): "
        "corrects the probabilities, but not the test figures",
    )
    export.add_argument("--register", metavar="NAME", help="register it in MLflow under this name")
    export.add_argument("--alias", default="winner", help="its alias there (default: winner)")
    export.add_argument(
        "--tracking", metavar="URI", help="MLflow to register it in (default: as for runs)"
    )
    add_store(export)
    export.set_defaults(command=_export)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"found {text!r}; write a share between 0 and 1, e.g. 0.9")
    return value


def _export(options: argparse.Namespace, console: Console) -> int:
    from calibration.prior import parsed_prior
    from sweeps.export.choice import choose
    from sweeps.export.markdown import confidence, percent
    from sweeps.export.package import Wish, assemble
    from sweeps.export.registry import register, wanted_registration
    from sweeps.export.writing import check_place, write
    from sweeps.spec.tracking_uri import check_tracking_option
    from sweeps.tracking import TrackingError

    try:
        prior = None if options.prior is None else parsed_prior(options.prior)
    except ValueError as error:
        raise UserError(str(error)) from error
    check_tracking_option(options.tracking)
    check_place(options.out)
    sweep = opened(options)
    chosen = choose(sweep.records, sweep.analysis, options.dataset, options.row, options.seed)
    registration = wanted_registration(
        sweep.loaded,
        sweep.store,
        chosen.dataset,
        name=options.register,
        alias=options.alias,
        tracking=options.tracking,
    )
    wish = Wish(options.accuracy, options.coverage)
    package = assemble(sweep.loaded, sweep.store, chosen, wish, prior)
    write(package, options.out)
    seed = chosen.trial.config.seed
    say(console, f"{chosen.label} on {chosen.dataset}, seed {seed}: {options.out}")
    if options.accuracy or options.coverage:
        threshold = confidence(package.description.threshold)
        say(console, f"abstains below a confidence of {threshold}; on test rows it answers "
            f"{percent(package.on_test.coverage)}, "
            f"{percent(package.on_test.accuracy)} of them right")  # fmt: skip
    if prior is not None:
        say(console, f"corrected for the deployment prior {options.prior}; test figures are those "
            "before the correction")  # fmt: skip
    if registration is not None:
        try:
            found = register(registration, sweep.spec, sweep.store, package, options.out)
        except TrackingError as error:
            complain(f"{error}; the export in {options.out} is complete")
            return 1
        say(console, f"registered  {found}")
    quoted = shlex.quote(str(options.out))
    say(console, f"model card  {options.out / 'README.md'}",
        f"serve       mlflow models serve -m {quoted} --env-manager local")  # fmt: skip
    return 0

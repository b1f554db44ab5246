"""``calsweep submit`` and ``calsweep stop``."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from sweeps.commands.arguments import Subparsers, add_spec, add_tracking
from sweeps.commands.run import add_how
from sweeps.masking import masked
from sweeps.saying import say

if TYPE_CHECKING:
    from cluster.jobs import Ended, Jobs

STATUS = {"SUCCEEDED": 0, "FAILED": 1, "STOPPED": 143}


def add(commands: Subparsers) -> None:
    """Add the commands."""
    submit = commands.add_parser(
        "submit", help="run, resume or repeat a sweep as a job of a Ray cluster"
    )
    add_spec(submit)
    _add_address(submit)
    submit.add_argument("--wait", action="store_true", help="follow it to its end")
    submit.add_argument(
        "--store",
        help="where the cluster's nodes keep it: a shared directory or a URI such as s3://… "
        "(default: the cluster's $CALSWEEP_STORE)",
    )
    submit.add_argument(
        "--include",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="a further file or directory that the sweep needs, below the current directory",
    )
    add_how(submit)
    add_tracking(submit)
    submit.set_defaults(command=_submit)
    stop = commands.add_parser("stop", help="end a submitted sweep in good order; nothing is lost")
    stop.add_argument("sweep", metavar="SWEEP", help="the sweep's name, or its YAML file")
    _add_address(stop)
    stop.set_defaults(command=_stop)


def _add_address(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--address",
        metavar="URL",
        help="the cluster's dashboard, e.g. http://head:8265 (default: $RAY_ADDRESS, or this "
        "machine's)",
    )


def _submit(options: argparse.Namespace, console: Console) -> int:
    from cluster.jobs import Jobs, entry_point, scratch, working_directory
    from sweeps.packing import copy
    from sweeps.spec.meaning import check_tracking_option
    from sweeps.spec.outline import outline
    from sweeps.spec.ready import spec_path

    path = spec_path(options.spec)
    named = outline(path)
    check_tracking_option(options.tracking)
    check_store(options.store)
    for name, uri in {"--tracking": options.tracking, "--store": options.store}.items():
        check_public(name, uri)
    check_public(f"{path}: tracking", named.spec.tracking.uri)
    for dataset in named.absent:
        say(console, f"{dataset} is not on this machine: the cluster will look for it")
    if (
        options.store
        and "://" in options.store
        and not (options.tracking or named.spec.tracking.uri)
    ):
        say(
            console, "no MLflow server is named: calsweep sync publishes what the store holds later"
        )
    sweep = named.spec.name
    with scratch() as place:
        spec = working_directory(path, named, Path.cwd(), place)
        copy([str(each) for each in options.include], Path.cwd(), place)
        jobs = Jobs(options.address)
        job = jobs.running(sweep)
        if job is None:
            job = jobs.submit(sweep, entry_point(spec, options.store, _how(options)), place)
            say(console, f"submitted {job} to {masked(jobs.address)}")
        else:
            say(console, f"{sweep} runs already as {job} on {masked(jobs.address)}")
    where = f" --address {shlex.quote(masked(options.address))}" if options.address else ""
    if not options.wait:
        say(
            console,
            f"follow    calsweep submit {shlex.quote(str(options.spec))} --wait{where}",
            f"stop      calsweep stop {shlex.quote(sweep)}{where}",
        )
        return 0
    return _follow(jobs, job, f"calsweep stop {shlex.quote(sweep)}{where}", console)


def _follow(jobs: Jobs, job: str, stop: str, console: Console) -> int:
    def write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    try:
        return _ended(jobs.follow(job, write), job, console)
    except KeyboardInterrupt:
        print(f"calsweep: {job} goes on without being watched; to end it: {stop}", file=sys.stderr)
        return 130


def _ended(ended: Ended, job: str, console: Console) -> int:
    if ended.status == "SUCCEEDED":
        return 0
    if ended.exit_code is None:  # its command did not get as far as to say why
        say(console, f"{job} {ended.status.lower()}: {' '.join(ended.message.split())[:500]}")
    return STATUS[ended.status] if ended.exit_code in (None, 0) else abs(ended.exit_code)


def _stop(options: argparse.Namespace, console: Console) -> int:
    from cluster.jobs import Jobs
    from sweeps.spec import SpecError

    sweep = _name(options.sweep)
    jobs = Jobs(options.address)
    job = jobs.running(sweep)
    if job is None:
        raise SpecError(f"no job of {masked(jobs.address)} runs the sweep {sweep!r} now")
    ended = jobs.stop(job)
    if ended.status == "STOPPED":
        say(console, f"stopped {job}; nothing is lost: calsweep submit goes on with it")
    else:
        say(console, f"{job} had just ended by itself: {ended.status.lower()}")
    return 0


def _name(given: str) -> str:
    from sweeps.spec.outline import outline
    from sweeps.spec.ready import spec_path

    path = spec_path(Path(given))
    return outline(path).spec.name if path.suffix in (".yaml", ".yml") else given


def check_store(store: str | None) -> None:
    """Raise ``SpecError`` for a store that would be another directory on every machine."""
    from sweeps.spec import SpecError

    if store is None or "://" in store or Path(store).is_absolute():
        return
    raise SpecError(
        f"--store: found {store!r}; the job runs on another machine: write a path that all nodes "
        "share, beginning with /, or a URI such as s3://bucket/runs"
    )


def check_public(name: str, uri: str | None) -> None:
    """Raise ``SpecError`` for a password that the cluster's list of jobs would show."""
    from sweeps.spec import SpecError

    if uri is None or masked(uri) == uri:
        return
    raise SpecError(
        f"{name}: found {masked(uri)}; whoever sees the cluster's jobs would see the password: "
        "leave it out, and set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD (or what the "
        "store needs) in the environment of the cluster's nodes"
    )


def _how(options: argparse.Namespace) -> list[str]:
    """The options that ``calsweep run`` is to be given."""
    words = ["--retry-failed"] if options.retry_failed else []
    given = {"--extend": options.extend or None, "--concurrent": options.concurrent}
    given["--tracking"] = options.tracking
    return words + [word for name, value in given.items() if value for word in (name, str(value))]

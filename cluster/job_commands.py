"""``calsweep submit`` and ``calsweep stop``."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from cluster.slurm import commands as slurm_commands
from sweeps.cli.arguments import Subparsers, add_spec, add_tracking
from sweeps.cli.run import add_how
from sweeps.errors import UserError
from sweeps.host.console import complain, say
from sweeps.host.secrets import masked

if TYPE_CHECKING:
    from cluster.jobs import Ended, Jobs
    from sweeps.host.slurm import Job
    from sweeps.spec.outline import Outline

_STATUS = {"SUCCEEDED": 0, "FAILED": 1, "STOPPED": 143}


def add(commands: Subparsers) -> None:
    """Add the commands."""
    submit = commands.add_parser(
        "submit", help="run, resume or repeat a sweep as a job of a Ray or Slurm cluster"
    )
    add_spec(submit)
    _add_address(submit)
    submit.add_argument("--wait", action="store_true", help="follow it to its end")
    submit.add_argument(
        "--store",
        help="where the cluster's nodes keep it: a shared directory or a URI such as s3://… "
        "(default: $CALSWEEP_STORE on the cluster, or ~/calsweep/runs; with --slurm: "
        "$CALSWEEP_STORE here, or runs)",
    )
    submit.add_argument(
        "--include",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="another file or directory that the sweep needs, below the current directory",
    )
    add_how(submit)
    add_tracking(submit)
    slurm_commands.add_slurm(submit)
    submit.set_defaults(command=_submit)
    stop = commands.add_parser("stop", help="stop a submitted sweep cleanly; nothing is lost")
    stop.add_argument("sweep", metavar="SWEEP", help="the sweep's name, or its YAML file")
    _add_address(stop)
    stop.add_argument("--store", help="with Slurm: of several jobs, the one with this store")
    stop.set_defaults(command=_stop)


def _add_address(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--address",
        metavar="URL",
        help="the cluster's dashboard, e.g. http://head:8265 (default: $RAY_ADDRESS if that is a "
        "URL, or this machine's)",
    )


def _submit(options: argparse.Namespace, console: Console) -> int:
    from sweeps.spec.outline import outline
    from sweeps.spec.ready import spec_path

    path = spec_path(options.spec)
    named = outline(path)
    if options.slurm:
        _check_tracking(options, named.spec.tracking.uri, path)
        return slurm_commands.submit(options, named.spec.name, path, _how(options), console)
    slurm_commands.check_not_slurm(options)
    check_store(options.store)
    _check_tracking(options, named.spec.tracking.uri, path)
    check_lasting("--tracking", options.tracking)
    check_lasting(f"{path}: tracking", named.spec.tracking.uri)
    for dataset in named.absent:
        say(console, f"{dataset} is not on this machine: the cluster will look for it")
    if not (options.tracking or named.spec.tracking.uri):
        say(console, "no MLflow server is named; calsweep sync can publish the records later")
    jobs, job = _sent(options, named, path, console)
    given = {"--address": options.address, "--store": options.store}
    words = [word for name, value in given.items() if value for word in (name, str(value))]
    where, place = shlex.join(words), shlex.join(words[:2]) if options.address else ""
    sweep = shlex.quote(named.spec.name)
    stop = f"calsweep stop {sweep} {place}".rstrip()
    if not options.wait:
        follow = f"calsweep submit {shlex.quote(str(options.spec))} --wait {where}".rstrip()
        say(console, f"follow    {follow}", f"stop      {stop}")
        return 0
    return _follow(jobs, job, stop, console)


def _sent(
    options: argparse.Namespace, named: Outline, path: Path, console: Console
) -> tuple[Jobs, str]:
    """The job that runs the sweep: an existing one, or a new one."""
    from cluster.jobs import Jobs, digest, entry_point, working_directory
    from sweeps.host.scratch import scratch_directory
    from sweeps.ray_backend.user_code import copy

    sweep, store = named.spec.name, options.store or ""
    with scratch_directory() as place:
        spec = working_directory(path, named, Path.cwd(), place)
        copy([str(each) for each in options.include], Path.cwd(), place)
        command = entry_point(spec, options.store, _how(options))
        made_of = digest(command, place)
        jobs = Jobs(options.address)
        running = jobs.running(sweep)
        if running is None:
            job = jobs.submit(sweep, command, place, store, made_of)
            say(console, f"submitted {job} to {jobs.address}")
            return jobs, job
    if running.store != store:
        raise UserError(
            f"{path}: name: another sweep named {sweep!r} runs on {jobs.address} as "
            f"{running.name}, with the store {running.store or 'of the cluster'}; wait for it to "
            "end, or choose another name"
        )
    say(console, f"{sweep} is already running as {running.name} on {jobs.address}")
    if running.digest != made_of:
        say(console, "changes since then take effect when it is submitted again after its end")
    return jobs, running.name


def _check_tracking(options: argparse.Namespace, tracking: str | None, path: Path) -> None:
    """Raise ``UserError`` for an invalid --tracking, or a password that others would see."""
    from sweeps.spec.tracking_uri import check_tracking_option

    check_tracking_option(options.tracking)
    given = {"--tracking": options.tracking, f"{path}: tracking": tracking}
    for name, uri in (given | {"--store": options.store, "--address": options.address}).items():
        check_public(name, uri)


def _follow(jobs: Jobs, job: str, stop: str, console: Console) -> int:
    from cluster.jobs import UnreachableError

    def write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    try:
        return _ended(jobs.follow(job, write), job, console)
    except UnreachableError as error:
        complain(f"{error}; {job} may still be running: follow it again")
        return 1
    except KeyboardInterrupt:
        complain(f"{job} continues unattended; to stop it: {stop}")
        return 130


def _ended(ended: Ended, job: str, console: Console) -> int:
    if ended.status == "SUCCEEDED":
        return 0
    if ended.exit_code is None:  # its command did not get far enough to say why
        say(console, f"{job} {ended.status.lower()}: {' '.join(ended.message.split())[:500]}")
    return _STATUS[ended.status] if ended.exit_code in (None, 0) else abs(ended.exit_code)


def _stop(options: argparse.Namespace, console: Console) -> int:
    from cluster.jobs import Jobs

    sweep = _name(options.sweep)
    queued = [] if options.address else _slurm_jobs(sweep, options.store)
    if queued:
        return slurm_commands.stop(queued, console)
    jobs = Jobs(options.address)
    job = jobs.running(sweep)
    if job is None:
        raise UserError(f"no job on {masked(jobs.address)} is running the sweep {sweep!r}")
    ended = jobs.stop(job.name)
    if ended.status == "STOPPED":
        say(console, f"stopped {job.name}; nothing is lost: calsweep submit continues it")
    else:
        say(console, f"{job.name} had already ended: {ended.status.lower()}")
    return 0


def _slurm_jobs(sweep: str, store: str | None) -> list[Job]:
    """The sweep's job in Slurm's queue, if there is one. Raises ``UserError`` if there are more."""
    from sweeps.host import slurm

    found = slurm.jobs(sweep, None if store is None else slurm_commands.place(store))
    if len(found) > 1:
        stores = ", ".join(job.store for job in found)
        raise UserError(f"{sweep}: several Slurm jobs run it; choose one with --store: {stores}")
    return found


def _name(given: str) -> str:
    from sweeps.spec.outline import outline
    from sweeps.spec.ready import spec_path

    path = spec_path(Path(given))
    return outline(path).spec.name if path.suffix in (".yaml", ".yml") else given


def check_store(store: str | None) -> None:
    """Raise ``UserError`` for a store that would be another directory on every machine."""
    if store is None or "://" in store or Path(store).is_absolute():
        return
    raise UserError(
        f"--store: found {store!r}; the job runs on another machine: write a path that all nodes "
        "share, starting with /, or a URI such as s3://bucket/runs"
    )


def check_public(name: str, uri: str | None) -> None:
    """Raise ``UserError`` for a password that the cluster's list of jobs would show."""
    from sweeps.spec.tracking_uri import password_in

    if uri is None or not password_in(uri):
        return
    raise UserError(
        f"{name}: found {masked(uri)}; everyone who can see the cluster's jobs would see the "
        "password: leave it out, and set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD (or "
        "the store's credentials) in the environment of the cluster's nodes"
    )


def check_lasting(name: str, uri: str | None) -> None:
    """Raise ``UserError`` for a database in the job's own directory, which is deleted with it."""
    if uri and uri.startswith("sqlite:///") and not uri.startswith("sqlite:////"):
        raise UserError(
            f"{name}: found {uri}; the job's directory is deleted with the job: name a server, or "
            "a database by its absolute path, sqlite:////…"
        )


def _how(options: argparse.Namespace) -> list[str]:
    """The options to pass to ``calsweep run``."""
    words = ["--retry-failed"] if options.retry_failed else []
    given = {
        "--extend": options.extend or None,
        "--seeds": options.seeds or None,
        "--concurrent": options.concurrent,
    }
    given["--tracking"] = options.tracking
    return words + [word for name, value in given.items() if value for word in (name, str(value))]

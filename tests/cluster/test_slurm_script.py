"""The script of a Slurm job: what it asks for, and when it asks to be started again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.slurm.ray_nodes import worker_command
from cluster.slurm.script import JobRequest, minutes, script
from sweeps.cli.main import main
from tests.waiting import output_of, wait_for

SPEC = "name: here\ndatasets: [iris]\nmethods: {standard: {lr: 0.01, weight_decay: 0}}\n"
# In place of the sweep: it ends with a code of its own choice, when it is asked to or at once.
SWEEP = """\
#!/bin/bash
trap 'echo asked; exit "$CODE"' TERM
echo up
[ -n "$WAITS" ] || exit "$CODE"
while true; do sleep 0.05; done
"""
TOLD = '#!/bin/bash\necho "$(basename "$0") $*" >> "$LOG"\n'


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "spec.yaml").write_text(SPEC)
    for name, text in {"sweep": SWEEP, "scontrol": TOLD, "scancel": TOLD}.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    return tmp_path


def outcome(place: Path, number: int | None, code: int, **job: str) -> tuple[int, str]:
    """How the script ends when its sweep ends with ``code``, and what it has asked Slurm for.

    ``number`` is the signal that the script gets first; None: it gets none.
    """
    made = script(JobRequest(), "here", place / "spec.yaml", "/runs", ())
    words = re.compile(r"^sweep=.*$", re.MULTILINE)
    (place / "job.sh").write_text(words.sub(f"sweep=({place}/bin/sweep)", made))
    log = place / "told.log"
    variables = {"CODE": str(code), "WAITS": "" if number is None else "yes", "LOG": str(log)}
    variables |= {"SLURM_JOB_ID": "7", "PATH": f"{place}/bin:{os.environ['PATH']}", **job}
    with (place / "out").open("w") as out:
        process = subprocess.Popen(
            ["bash", str(place / "job.sh")], stdout=out, stderr=out, env=os.environ | variables
        )
    if number is not None:
        wait_for(lambda: "up" in (place / "out").read_text(), process)
        process.send_signal(number)
    output_of(process)
    return process.returncode, log.read_text().strip() if log.exists() else ""


ARRAY = {"SLURM_ARRAY_JOB_ID": "5", "SLURM_ARRAY_TASK_ID": "2"}


@pytest.mark.parametrize(
    ("number", "code", "told"),
    [
        (None, 0, ""),
        (None, 1, ""),  # trials have failed
        (None, 2, ""),  # bad input
        (None, 143, ""),  # somebody else has ended it
        (signal.SIGUSR1, 143, "scontrol requeue 7"),
        (signal.SIGUSR1, 0, ""),  # it was just done
        (signal.SIGUSR1, 1, ""),
        (signal.SIGUSR2, 143, "scancel 7"),
        (signal.SIGTERM, 143, ""),  # Slurm knows what it does
    ],
)
def test_only_the_time_limit_makes_a_job_come_back(
    place: Path, number: int | None, code: int, told: str
) -> None:
    assert outcome(place, number, code) == (code, told)
    assert ("asked" in (place / "out").read_text()) == (number is not None)


@pytest.mark.parametrize(
    ("number", "code", "ended", "told"),
    [
        (signal.SIGUSR1, 143, 0, ""),  # the next one goes on
        (None, 1, 1, "scancel --state=PENDING 5"),  # the next ones would come to the same
        (signal.SIGUSR2, 143, 143, "scancel 5"),
    ],
)
def test_the_jobs_of_an_array_follow_each_other(
    place: Path, number: int | None, code: int, ended: int, told: str
) -> None:
    assert outcome(place, number, code, **ARRAY) == (ended, told)


def test_a_changed_spec_is_not_run(place: Path) -> None:
    made = script(JobRequest(), "here", place / "spec.yaml", "/runs", ())
    (place / "spec.yaml").write_text(SPEC + "seed: 3\n")
    variables = os.environ | {"SLURM_JOB_ID": "7"}
    done = subprocess.run(["bash"], input=made, capture_output=True, text=True, env=variables)
    assert done.returncode == 2
    assert "has changed since it was submitted: submit it again" in done.stdout


def test_what_is_asked_for_stands_in_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "my project"
    directory.mkdir()
    monkeypatch.chdir(directory)
    (directory / "spec.yaml").write_text(SPEC)
    (directory / "modules.sh").write_text("module load cuda\n")
    words = ["submit", "spec.yaml", "--slurm", "--write", "job.sh", "--partition", "gpu"]
    words += ["--time", "1-0", "--nodes", "3", "--cpus", "8", "--gpus", "a100:2", "--mem", "32G"]
    words += ["--sbatch=--qos=long", "--setup", "modules.sh", "--extend", "2", "--account", "us"]
    assert main(words) == 0, capsys.readouterr()
    made = (directory / "job.sh").read_text()
    lines = {line for line in made.splitlines() if line.startswith("#SBATCH")}
    assert {
        *(
            "#SBATCH --partition=gpu",
            "#SBATCH --time=1-0",
            "#SBATCH --nodes=3",
            "#SBATCH --mem=32G",
        ),
        *("#SBATCH --cpus-per-task=8", "#SBATCH --gpus-per-node=a100:2", "#SBATCH --qos=long"),
        *("#SBATCH --signal=B:USR1@180", "#SBATCH --requeue", "#SBATCH --account=us"),
        *(f'#SBATCH --chdir="{directory}"', f'#SBATCH --comment="calsweep store {directory}/runs"'),
    } <= lines
    assert f"{sys.executable} -m cluster.slurm.ray_nodes" in made
    assert "--extend 2" in made
    assert f". '{directory}/modules.sh'" in made
    assert subprocess.run(["bash", "-n", "job.sh"]).returncode == 0


def test_srun_is_told_what_it_does_not_take_from_its_job() -> None:
    job = {"SLURM_JOB_NUM_NODES": "4", "SLURM_CPUS_PER_TASK": "8", "SLURM_GPUS_PER_NODE": "a100:2"}
    words = worker_command(job, "10.0.0.1:6379")
    assert {"--nodes=3", "--ntasks=3", "--cpus-per-task=8", "--gpus-per-node=a100:2"} <= {*words}


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("90", 90),
        ("90:30", 90.5),
        ("2:00:00", 120),
        ("1-2", 1560),
        ("1-2:30", 1590),
        ("1-02:30:30", 1590.5),
        ("tomorrow", None),
        ("1-", None),
    ],
)
def test_times_are_read_as_slurm_reads_them(time: str, expected: float | None) -> None:
    assert minutes(time) == expected


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--slurm", "--time", "5"], "--time: found 5"),
        (["--slurm", "--time", "soon"], "--time: found 'soon'"),
        (["--slurm", "--address", "http://head:8265"], "--address cannot be used with --slurm"),
        (["--slurm", "--setup", "absent.sh"], "--setup: no file absent.sh"),
        (["--slurm", "--sbatch", "qos=long"], "--sbatch: found 'qos=long'"),
        (["--slurm", "--tracking", "http://me:secret@host"], "MLFLOW_TRACKING_PASSWORD"),
        (["--partition", "gpu"], "--partition requires --slurm"),
    ],
)
def test_what_cannot_be_asked_for_is_said_before_anything_is_submitted(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    told: str,
) -> None:
    monkeypatch.chdir(place)
    assert main(["submit", "spec.yaml", *words]) == 2
    said = capsys.readouterr().err
    assert told in said
    assert "secret" not in said
    assert len(said.strip().splitlines()) == 1

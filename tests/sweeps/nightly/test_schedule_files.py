"""The CronJob and the workflow: valid to who reads them, and the workflow's scripts at work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).parents[3]
CRONJOB = ROOT / "cluster" / "schedules" / "cronjob.yaml"
WORKFLOW = ROOT / ".github" / "workflows" / "nightly.yml"
DATES = [f"2026-{month:02d}-{day:02d}" for month in (1, 2) for day in range(1, 21)]


@pytest.mark.parametrize("version", ["1.31", kubernetes_validate.latest_version()])
def test_kubernetes_takes_the_cron_job(version: str) -> None:
    for manifest in yaml.safe_load_all(CRONJOB.read_text()):
        kubernetes_validate.validate(manifest, version, strict=True)


def test_what_the_cron_job_mounts_and_reads_is_there() -> None:
    claim, job = yaml.safe_load_all(CRONJOB.read_text())
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    work = job["spec"]["jobTemplate"]["spec"]
    pod = work["template"]["spec"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["nights"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    [container] = pod["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert container["command"][-1] in mounts
    assert pod["restartPolicy"] == "Never"  # or the policy on exit codes would be refused
    assert work["activeDeadlineSeconds"] > 40 * 60 + 2 * pod["terminationGracePeriodSeconds"]


def test_github_takes_every_workflow() -> None:
    workflows = [str(path) for path in WORKFLOW.parent.glob("*.yml")]
    for schema in ("vendor.github-workflows", "custom.github-workflows-require-timeout"):
        check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema]
        done = subprocess.run([*check, *workflows], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


class Runner:
    """Runs a step's script as a runner does, in a fresh clone of a repository."""

    def __init__(self, place: Path) -> None:
        self.workflow: dict[str, Any] = yaml.safe_load(WORKFLOW.read_text())
        self.origin, self.temp = place / "origin.git", place / "temp"
        self.clone = place / "clone"
        self.temp.mkdir()

    def fresh(self) -> None:
        """A machine that has never seen the repository."""
        subprocess.run(["rm", "-rf", self.clone, self.temp / "nights.index"], check=True)
        subprocess.run(["git", "clone", "-q", self.origin, self.clone], check=True)
        (self.clone / ".venv" / "bin").mkdir(parents=True)
        (self.clone / ".venv" / ".run").touch()

    def step(self, name: str, **more: str) -> subprocess.CompletedProcess[str]:
        steps = self.workflow["jobs"]["night"]["steps"]
        [step] = [step for step in steps if step.get("name") == name]
        environment = self.workflow["env"] | step.get("env", {}) | more
        environment |= {"RUNNER_TEMP": str(self.temp), "GITHUB_STEP_SUMMARY": f"{self.temp}/sum"}
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.clone,
            env=os.environ | environment,
            capture_output=True,
            text=True,
        )

    def done(self, name: str, **more: str) -> str:
        done = self.step(name, **more)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    for name in ("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"):
        monkeypatch.setenv(name, "test")
    for name in ("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"):
        monkeypatch.setenv(name, "test@example.org")
    made = Runner(tmp_path)
    subprocess.run(["git", "init", "-q", "--bare", made.origin], check=True)
    made.fresh()
    (made.clone / ".gitignore").write_text("/nights/\n")
    for words in (["add", ".gitignore"], ["commit", "-qm", "x"], ["push", "-q", "origin", "HEAD"]):
        subprocess.run(["git", *words], cwd=made.clone, check=True)
    return made


def night(clone: Path, date: str) -> None:
    """What a night leaves behind, and much that must not go to the branch."""
    suite = clone / "nights" / "nightly"
    for name in (f"{date}/runs/records/x", f"{date}/.draft", "log/x.log", "mlflow.db", ".lock"):
        (suite / name).parent.mkdir(parents=True, exist_ok=True)
        (suite / name).write_text("much")
    for name in ("night.json", "results.parquet", "verdict.json", "report.html", "report.md"):
        (suite / date / name).write_text(f"{name} of {date}")
    (suite / "baseline.json").write_text("the baseline")
    (suite / "history.parquet").write_text(f"history until {date}")


def test_the_baseline_survives_between_runs_and_nothing_big_is_kept(runner: Runner) -> None:
    runner.fresh()
    assert "becomes the baseline" in runner.done("Fetch baseline and history")
    for date in DATES[:-1]:
        night(runner.clone, date)
    runner.done("Keep baseline and history")
    runner.fresh()
    runner.done("Fetch baseline and history")
    suite = runner.clone / "nights" / "nightly"
    assert (suite / "baseline.json").read_text() == "the baseline"
    assert sorted(path.name for path in suite.glob("2026*")) == DATES[-31:-1]
    night(runner.clone, DATES[-1])
    runner.done("Keep baseline and history")
    runner.fresh()
    runner.done("Fetch baseline and history")
    assert (suite / "history.parquet").read_text() == f"history until {DATES[-1]}"
    kept = {path.name for path in suite.rglob("*") if path.is_file()}
    assert kept == {
        *("baseline.json", "history.parquet", "night.json", "results.parquet"),
        *("verdict.json", "report.html", "report.md"),
    }
    log = ["git", "-C", str(runner.origin), "log", "--format=%an", "nights"]
    authors = subprocess.run(log, capture_output=True, text=True, check=True).stdout.split()
    assert authors == ["github-actions[bot]"]


def test_a_server_out_of_reach_is_not_a_first_night(runner: Runner) -> None:
    runner.origin.rename(runner.origin.with_name("away"))
    assert runner.step("Fetch baseline and history").returncode not in (0, 2)


def test_only_what_was_fetched_is_replaced_and_only_from_the_default_branch(
    runner: Runner,
) -> None:
    job = runner.workflow["jobs"]["night"]
    steps = {step.get("name"): step for step in job["steps"]}
    fetch = steps["Fetch baseline and history"]["id"]
    condition = steps["Keep baseline and history"]["if"]
    assert f"steps.{fetch}.outcome == 'success'" in condition
    assert "env.KEEPS == 'true'" in condition
    assert "github.event_name == 'schedule' || github.ref_name ==" in job["env"]["KEEPS"]
    first, *_ = job["steps"]
    assert first["if"] == "${{ inputs.accept && env.KEEPS != 'true' }}"
    assert runner.step(first["name"]).returncode == 1


def test_a_night_that_left_nothing_leaves_the_branch_alone(runner: Runner) -> None:
    (runner.clone / "nights").mkdir()
    runner.done("Keep baseline and history")
    heads = ["git", "-C", str(runner.origin), "branch", "--list", "nights"]
    assert subprocess.run(heads, capture_output=True, text=True, check=True).stdout == ""


def test_the_summary_is_the_report_of_this_night_and_of_no_other(runner: Runner) -> None:
    night(runner.clone, DATES[0])
    old = runner.clone / "nights" / "nightly" / DATES[0] / "report.md"
    os.utime(old, (0, 0))
    runner.done("Show the report")
    summary = runner.temp / "sum"
    assert "no verdict" in summary.read_text()
    night(runner.clone, DATES[1])
    os.utime(old, (0, 0))
    runner.done("Show the report")
    assert summary.read_text().endswith(f"report.md of {DATES[1]}")


def test_the_command_gets_its_secrets_and_its_exit_code_counts(runner: Runner) -> None:
    tool = runner.clone / ".venv" / "bin" / "calsweep"
    told = 'env -u CALSWEEP_CACHE | grep -E "^(CALSWEEP|MLFLOW_TRACKING)_"'
    tool.write_text(f'#!/bin/sh\necho "$@"; {told}; exit 1\n')
    tool.chmod(0o755)
    secrets = {"CALSWEEP_WEBHOOK": "", "CALSWEEP_PING": ""}
    secrets |= {"MLFLOW_TRACKING_URI": "http://mlflow"}
    secrets |= {"MLFLOW_TRACKING_USERNAME": "", "MLFLOW_TRACKING_PASSWORD": ""}
    done = runner.step("Run the night", **secrets)
    assert done.returncode == 1
    assert done.stdout == "nightly --nights nights\nMLFLOW_TRACKING_URI=http://mlflow\n"


def test_what_is_typed_in_is_no_command(runner: Runner) -> None:
    tool = runner.clone / ".venv" / "bin" / "calsweep"
    tool.write_text('#!/bin/sh\nfor word; do echo "$word"; done\n')
    tool.chmod(0o755)
    typed = '"; touch broken; $(touch broken)'
    out = runner.done("Accept a baseline", NIGHT="2026-01-01", REASON=typed)
    assert out.splitlines()[-4:] == ["--night", "2026-01-01", "--reason", typed]
    assert "${{" not in "".join(
        step.get("run", "") for step in runner.workflow["jobs"]["night"]["steps"]
    )
    assert not (runner.clone / "broken").exists()

"""MLflow with users on a real Postgres: eight trials at once, an outage, and no secret told."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest

from cluster import migration
from sweeps.cli.main import main
from sweeps.errors import UserError
from sweeps.tracking.mlflow import access
from sweeps.tracking.mlflow.access import check_access
from tests.cluster.postgres import Postgres, postgres
from tests.cluster.test_mlflow_files import COMPOSE, interpolated
from tests.faults.kit import MODULE, Scene, sweep_up
from tests.ports import free_port
from tests.tracked import PUBLISHED_STEPS, make_plan, runs_of, steps, synced, train_all
from tests.waiting import LIMIT, output_of, wait_for, wait_until_gone

pytestmark = pytest.mark.slow

SPEC = """\
datasets: [blobs-1.7]
model: {name: mlp, widths: [8]}
methods:
  gathered: {method: "paced:Gathered", lr: {loguniform: [0.01, 0.1]}, weight_decay: 0, log: LOG}
training: {epochs: 20, batch_size: full, evaluate_every: 5}
search: {sampler: random, trials: 23}
confirm_seeds: 1
calibrators: []
resources: {cpu: 0.25}
"""
# Nobody comes past the middle before all are there: else who ends early is given the next trial,
# and the last of the workers is never needed. The second eight wait for the outage, all others for
# its end.
MODULE_OF_EIGHT = f"""{MODULE}
class Gathered(Paced):
    def loss(self, output, labels, numbers):
        found = super().loss(output, labels, numbers)
        while numbers["progress"] >= 0.5 and not self.may_go_on():
            time.sleep(0.1)
        return found

    def may_go_on(self):
        steps = [line.split() for line in open(self.hyperparameters.log)]
        rates = list(dict.fromkeys(rate for rate, _, _ in steps))
        place = rates.index(str(self.hyperparameters.lr))
        sign = self.hyperparameters.log + (".away" if place < 16 else ".back")
        return len({{pid for _, _, pid in steps}}) == 8 and (place < 8 or os.path.exists(sign))
"""
TRIALS, CURVE = 24, [5, 10, 15, 20]
AT_ONCE = 8
OUTAGE = 20.0
USERNAME, PASSWORD = "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"


def secret() -> str:
    """A password with all the signs that have a meaning in a URI."""
    return f"{secrets.token_urlsafe(18)}@:/%20'?#"


def most_at_once(times: list[list[float]]) -> int:
    """How many trainings went on at the same time."""
    spans = [(epochs[0], epochs[-1]) for epochs in times]
    return max(sum(began <= at <= ended for began, ended in spans) for at, _ in spans)


@dataclass
class Told:
    """Everything that was said where others can hear it, to be searched for secrets."""

    texts: dict[str, bytes] = field(default_factory=dict)
    directories: list[Path] = field(default_factory=list)

    def commands(self, what: str) -> None:
        """The arguments of every process that runs now."""
        lines = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                lines.append("\0".join(process.cmdline()))
        self.texts[f"processes {what}"] = "\n".join(lines).encode()

    def everything(self) -> Iterator[tuple[str, bytes]]:
        yield from self.texts.items()
        for directory in self.directories:
            for path in directory.rglob("*"):
                if path.is_file():
                    yield str(path), path.read_bytes()


@dataclass
class Service:
    """A server that ``calsweep tracking up`` keeps, its database, and what is secret about it."""

    database: Postgres
    directory: Path
    process: subprocess.Popen[bytes]
    port: int
    admin: str
    user: str
    key: str
    told: Told = field(default_factory=Told)

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.directory / "server.log"

    @property
    def secrets(self) -> dict[str, str]:
        names = ("the admin's password", "the user's", "the database's", "the key")
        return dict(
            zip(names, (self.admin, self.user, self.database.password, self.key), strict=True)
        )

    def ask(self, path: str, **body: str) -> dict[str, object]:
        """What the server's API answers to the admin."""
        word = base64.b64encode(f"admin:{self.admin}".encode()).decode()
        headers = {"Authorization": f"Basic {word}", "Content-Type": "application/json"}
        request = urllib.request.Request(
            f"{self.uri}/api/2.0/mlflow/{path}",
            data=json.dumps(body).encode() if body else None,
            headers=headers,
        )
        with urllib.request.urlopen(request, timeout=LIMIT) as answer:
            return dict(json.loads(answer.read()))


@pytest.fixture(scope="module")
def environment() -> Iterator[pytest.MonkeyPatch]:
    """The clients' environment: nothing of this machine's, and a user of the server's."""
    with pytest.MonkeyPatch.context() as patch:
        for name in (USERNAME, PASSWORD, "MLFLOW_TRACKING_TOKEN", "PGPASSWORD"):
            patch.delenv(name, raising=False)
        yield patch


@pytest.fixture(scope="module")
def service(
    tmp_path_factory: pytest.TempPathFactory, environment: pytest.MonkeyPatch
) -> Iterator[Service]:
    directory = tmp_path_factory.mktemp("tracking")
    admin, user, key, port = secret(), secret(), secret(), free_port()
    with postgres(secret()) as database:
        database.create("tracking")
        command = [sys.executable, "-m", "sweeps.cli", "tracking", "up", "--port", str(port)]
        command += ["--database", database.uri("tracking"), "--artifacts", "artifacts"]
        variables = {"MLFLOW_AUTH_ADMIN_PASSWORD": admin, "MLFLOW_FLASK_SERVER_SECRET_KEY": key}
        variables["PGPASSWORD"] = database.password
        with (directory / "server.log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=directory, env=os.environ | variables, stdout=log, stderr=log
            )
        made = Service(database, directory, process, port, admin, user, key)
        try:
            wait_for(lambda: b"MLflow runs at" in made.log.read_bytes(), process, log=made.log)
            made.ask("users/create", username="ada", password=user)
            environment.setenv(USERNAME, "ada")
            environment.setenv(PASSWORD, user)
            yield made
        finally:
            process.kill()
            process.wait()
            sweep_up()


@pytest.fixture(scope="module")
def swept(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """A sweep whose server loses its database in the middle."""
    directory = tmp_path_factory.mktemp("swept")
    spec = SPEC.replace("LOG", str(directory / "steps"))
    scene = Scene(directory, spec, tracking=service.uri, module=MODULE_OF_EIGHT)
    process = scene.start()
    wait_for(lambda: len(scene.records()) == AT_ONCE, process)
    wait_for(scene.trials, process)
    service.told.commands("before the outage")
    service.database.stop()
    (directory / "steps.away").touch()
    time.sleep(OUTAGE)
    wait_for(lambda: len(scene.records()) == 2 * AT_ONCE, process)
    service.database.start()
    (directory / "steps.back").touch()
    service.told.commands("after the outage")
    out, err = output_of(process)
    service.told.texts |= {"the sweep's output": out.encode(), "its errors": err.encode()}
    service.told.directories += [scene.directory, service.directory]
    assert process.returncode == 0, err
    assert "could not be reached" not in out
    return scene


def test_eight_trials_at_once_and_20_seconds_without_a_database_lose_nothing(
    swept: Scene, service: Service
) -> None:
    swept.assert_exact(TRIALS, CURVE, {"FINISHED"})
    assert most_at_once([record.times for record in swept.records().values()]) == AT_ONCE
    count = "SELECT count(*) FROM runs WHERE lifecycle_stage = 'active'"
    assert service.database.rows("tracking", count) == [(TRIALS + 1,)]
    seen = "SELECT count(*), count(DISTINCT (run_uuid, key, step)) FROM metrics"
    assert len(set(*service.database.rows("tracking", seen))) == 1


def test_artifacts_go_through_the_server_to_its_own_place(swept: Scene, service: Service) -> None:
    kept = [json.loads(p.read_text()) for p in service.directory.rglob("record.json")]
    assert sorted(r["attempt"] for r in kept) == sorted(swept.attempts().values())


@pytest.mark.parametrize(
    ("command", "password", "problem"),
    [("run", None, f"{PASSWORD} is missing"), ("sync", "not-hers", "is wrong")],
)
def test_without_the_right_password_a_command_ends_at_once(
    command: str,
    password: str | None,
    problem: str,
    swept: Scene,
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(access, "ANSWER_SECONDS", LIMIT)  # or a busy server counts as away
    if password is None:
        monkeypatch.delenv(PASSWORD)
    else:
        monkeypatch.setenv(PASSWORD, password)
    monkeypatch.syspath_prepend(swept.directory)
    monkeypatch.delitem(sys.modules, "paced", raising=False)  # that of another scene
    where = ["--store", str(swept.root), "--tracking", service.uri]
    assert main([command, str(swept.directory / "spec.yaml"), *where]) == 2
    said = capsys.readouterr()
    assert len(said.err.strip().splitlines()) == 1
    assert service.uri in said.err
    assert problem in said.err
    assert "not-hers" not in said.out + said.err


def test_who_may_only_read_is_told_before_the_work(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "ANSWER_SECONDS", LIMIT)
    service.ask("experiments/create", name="theirs")
    with pytest.raises(UserError, match=r"'ada' may not write to the experiment 'theirs'.*READ"):
        check_access(service.uri, "theirs")
    check_access(service.uri, "of her own")
    check_access(service.uri)


def test_a_server_is_known_by_its_names_only(service: Service) -> None:
    request = urllib.request.Request(f"{service.uri}/", headers={"Host": "elsewhere.example"})
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(request, timeout=LIMIT)


def test_a_server_that_is_away_is_no_error() -> None:
    check_access(f"http://127.0.0.1:{free_port()}", "s")
    check_access(f"postgresql://mlflow@127.0.0.1:{free_port()}/mlflow")


def test_a_database_can_be_written_to_without_a_server(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(access, "ANSWER_SECONDS", LIMIT)
    service.database.create("direct")
    bare, word = service.database.uri("direct"), quote(service.database.password, safe="")
    with pytest.raises(UserError, match="no password supplied"):
        check_access(bare)
    with pytest.raises(UserError, match="authentication failed") as refused:
        check_access(bare.replace("@", ":not-this-one@"))
    assert "not-this-one" not in str(refused.value)
    uri = bare.replace("@", f":{word}@")
    check_access(uri)
    plan = make_plan(tmp_path)
    trained = train_all(plan)
    assert synced(uri, plan, "done") == len(trained)
    monkeypatch.setenv("PGPASSWORD", service.database.password)
    found = runs_of(uri.replace("postgresql:", "postgresql+psycopg2:"))
    assert len(found) == len(trained) + 1
    for trial in trained:
        run = found[trial.key]
        assert steps(uri.replace("postgresql:", "postgresql+psycopg2:"), run) == PUBLISHED_STEPS
    service.told.directories.append(tmp_path)


def test_the_containers_settings_find_the_database_and_two_migrations_take_turns(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.database.create("mlflow")
    settings = COMPOSE["services"]["migrate"]["environment"]
    found = interpolated(settings, service.database.environment)
    for name, value in {**found, **service.database.environment}.items():
        monkeypatch.setenv(name, value)
    with ThreadPoolExecutor(2) as both:
        assert list(both.map(lambda _: migration.main(), range(2))) == [0, 0]
    tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
    assert {("runs",), ("users",)} <= set(service.database.rows("mlflow", tables))


def test_it_ends_with_all_its_processes_and_has_told_no_secret(
    swept: Scene, service: Service
) -> None:
    told = service.told
    family = psutil.Process(service.process.pid).children(recursive=True)
    assert len(family) >= 4
    told.texts["the database"] = service.database.dump("tracking")
    told.texts["the database's log"] = service.database.log.read_bytes()
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait() == 0
    wait_until_gone(family)
    forms = {
        (name, form.encode())
        for name, word in service.secrets.items()
        for form in (word, quote(word, safe=""), quote(word), json.dumps(word)[1:-1], repr(word))
    }
    for user, word in (("admin", service.admin), ("ada", service.user)):
        forms.add((f"the header of {user}", base64.b64encode(f"{user}:{word}".encode())))
    searched = list(told.everything())
    assert sum(name.endswith("record.json") for name, _ in searched) >= 2 * TRIALS
    assert [(n, w) for n, text in searched for w, form in forms if form in text] == []

"""The endpoint of a running driver: its answers, whom it refuses, what it shows in a browser."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from sweeps.cli.main import main
from sweeps.engine.plan import Plan
from sweeps.engine.trial import TrialRun
from sweeps.errors import UserError
from sweeps.spec import read_spec
from sweeps.status import server as module
from sweeps.status.server import StatusServer
from sweeps.status.snapshot import CURVE_POINTS, curve_points, snapshot
from sweeps.store import Store
from tests.browser import browser, console_errors, requests, resize
from tests.waiting import LIMIT

HOSTILE = '<img src=x onerror=alert(1)> \\"row\\"'
SPEC = f"""\
name: watched
datasets: [iris]
model: {{name: mlp, widths: [4]}}
methods:
  standard: {{lr: 0.05, weight_decay: 0}}
  "{HOSTILE}": {{method: focal, lr: 0.05, weight_decay: 0, gamma: 1.0}}
training: {{epochs: 10, batch_size: full, evaluate_every: 1}}
confirm_seeds: 2
calibrators: [temperature]
"""


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """Two of four trials are done, and one is being trained: its curve is live."""
    directory = tmp_path_factory.mktemp("watched")
    loaded = read_spec(SPEC, directory / "spec.yaml", directory)
    store = Store(directory / "runs")
    made = Plan(loaded, store)
    made.replay()
    for _ in range(2):
        trial = made.next()
        assert trial is not None
        names, evaluation = made.spec.calibrator_names, made.spec.evaluation
        run = TrialRun(trial.config, store, calibrators=names, evaluation=evaluation)
        assert run.advance(600)
        made.complete(trial.key)
    running = made.next()
    assert running is not None
    curve = [{"epoch": epoch, "validation/nll": 1 / epoch} for epoch in (1.0, 2.0, 3.0)]
    store.write_live(running.key, {"lineage": "", "times": [], "curve": curve})
    return made


@pytest.fixture(scope="module")
def served(plan: Plan) -> Iterator[StatusServer]:
    with StatusServer("127.0.0.1", 0) as server, server.showing(plan):
        yield server


def get(server: StatusServer, path: str, **headers: str) -> tuple[int, str, dict[str, str]]:
    place = server.address.removeprefix("http://")
    connection = http.client.HTTPConnection(place, timeout=LIMIT)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), dict(answer.getheaders())


def test_json_says_how_the_sweep_stands(served: StatusServer) -> None:
    code, text, headers = get(served, "/status.json")
    assert (code, headers["Content-Type"]) == (200, "application/json")
    said = json.loads(text)
    assert said["sweep"] == "watched"
    assert said["trials"] == {"total": 4, "done": 2, "failed": 0, "pruned": 0, "running": 1}
    assert len(said["ended"]) == 2
    (running,) = said["running"]
    assert (running["epoch"], running["epochs"]) == (3, 10)
    assert running["curve"] == {
        "metric": "validation/nll",
        "points": [[1.0, 1.0], [2.0, 0.5], [3.0, 1 / 3]],
    }
    lines = said["leaderboard"]
    assert {line["calibrator"] for line in lines} == {"identity", "temperature"}
    assert [line["nll"] for line in lines] == sorted(line["nll"] for line in lines)
    assert "test" not in text, "test data is for the report"
    assert said["resident_bytes"] > 1e6


def test_prometheus_reads_its_text(served: StatusServer) -> None:
    code, text, _ = get(served, "/metrics")
    assert code == 200
    families = {family.name: family for family in text_string_to_metric_families(text)}
    trials = {s.labels["state"]: s.value for s in families["calsweep_trials"].samples}
    assert trials["done"] == 2
    rows = {sample.labels["row"] for sample in families["calsweep_cell_trials"].samples}
    assert HOSTILE.replace("\\", "") in rows
    assert families["calsweep_validation_nll"].samples


@pytest.mark.parametrize(
    ("host", "code"),
    [
        *(("localhost", 200), ("LOCALHOST:1234", 200), ("127.0.0.1", 200), ("[::1]:80", 200)),
        *((socket.gethostname(), 200), ("evil.example.org", 403), ("evil.example.org:80", 403)),
        *(("", 403), ("localhost.evil.example.org", 403)),
    ],
)
def test_foreign_names_are_refused(served: StatusServer, host: str, code: int) -> None:
    assert get(served, "/status.json", Host=host)[0] == code
    assert get(served, "/healthz", Host=host)[0] == code


def test_nothing_else_is_served(served: StatusServer) -> None:
    for path in ("/etc/passwd", "/../server.py", "/page.html", "/status.json/.."):
        assert get(served, path)[0] == 404
    assert "default-src 'self'" in get(served, "/")[2]["Content-Security-Policy"]
    connection = http.client.HTTPConnection(served.address.removeprefix("http://"), timeout=LIMIT)
    connection.request("POST", "/status.json", body=b"{}")
    assert connection.getresponse().status == 501


def test_a_taken_port_is_one_message(
    served: StatusServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = int(served.address.rpartition(":")[2])
    with pytest.raises(UserError, match=f"--status-port: 127.0.0.1:{port} cannot be used"):
        StatusServer("127.0.0.1", port)
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC)
    command = ["run", str(spec), "--store", str(tmp_path / "runs"), "--status-port", str(port)]
    assert main(command) == 2
    said = capsys.readouterr().err
    assert f"127.0.0.1:{port} cannot be used" in said
    assert "Traceback" not in said
    assert not (tmp_path / "runs").exists(), "before anything begins"


def test_whoever_asks_often_gets_the_last_snapshot(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[float] = []

    def counted(plan: Plan, began: float) -> dict[str, Any]:
        taken.append(began)
        return snapshot(plan, began)

    monkeypatch.setattr(module, "snapshot", counted)
    monkeypatch.setattr(module, "LEAST_SECONDS", 1e6)
    server = StatusServer("127.0.0.1", 0)
    with server, server.showing(plan):
        threads = [threading.Thread(target=get, args=(server, "/status.json")) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(taken) <= 1
    assert server.status()["sweep"] == "watched", "what was shown last stays"


def test_a_snapshot_that_fails_is_an_answer(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(plan: Plan, began: float) -> dict[str, Any]:
        raise ZeroDivisionError

    with StatusServer("127.0.0.1", 0) as server:
        server._plan = plan
        monkeypatch.setattr(module, "snapshot", broken)
        assert get(server, "/status.json")[:2] == (500, "ZeroDivisionError\n")
        assert get(server, "/healthz")[0] == 200


def test_a_long_curve_is_thinned_and_keeps_its_end() -> None:
    curve = [{"epoch": float(epoch), "train/loss": 1.0} for epoch in range(1, 1001)]
    points = curve_points(curve)["points"]
    assert len(points) <= CURVE_POINTS + 1
    assert points[-1][0] == 1000.0
    assert curve_points([{"epoch": 1.0, "train/loss": float("nan")}])["points"] == []


@pytest.mark.slow
def test_the_page_shows_it_in_a_browser(served: StatusServer) -> None:
    with browser() as driver:
        driver.get(served.address)
        WebDriverWait(driver, LIMIT).until(lambda d: "watched" in d.title)
        assert driver.title == "watched: 2 of 4"
        state = driver.find_element(By.ID, "state").text
        assert state == "running: 2 of 4 trials done, 1 running, 0 failed"
        assert len(driver.find_elements(By.CSS_SELECTOR, "#leaderboard tbody tr")) >= 2
        points = driver.find_element(By.CSS_SELECTOR, "#running polyline").get_attribute("points")
        assert points is not None
        assert points.split()[0] == "10,5"
        assert len(points.split()) == 3
        assert "<img src=x" in driver.find_element(By.ID, "cells").text, "text, and no element"
        assert not driver.find_elements(By.TAG_NAME, "img")
        resize(driver, 375, 812)
        table = driver.find_element(By.ID, "leaderboard")
        needed, there = (int(table.get_property(f"{kind}Width")) for kind in ("scroll", "client"))
        assert needed <= there, "on a phone, too, the NLL is in sight"
        assert console_errors(driver) == []
        assert all(address.startswith(served.address) for address in requests(driver))

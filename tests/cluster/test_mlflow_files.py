"""The MLflow server as containers: what their schemas, MLflow itself and a careful admin ask."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from mlflow.server.auth.config import read_auth_config

ROOT = Path(__file__).parents[2]
PLACE = ROOT / "cluster" / "mlflow"
CONSTRAINTS = (ROOT / "constraints.txt").read_text()
COMPOSE = yaml.safe_load((PLACE / "compose.yaml").read_text())
OBJECTS = list(yaml.safe_load_all((PLACE / "kubernetes.yaml").read_text()))
SECRETS = {"PGPASSWORD", "MLFLOW_AUTH_ADMIN_PASSWORD", "MLFLOW_FLASK_SERVER_SECRET_KEY"}
REFERENCE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")


def interpolated(values: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """As compose does it. Raises ``KeyError`` for a variable that must be set and is not."""

    def value(found: re.Match[str]) -> str:
        name, kind, text = found.groups()
        if given.get(name):
            return given[name]
        if kind != "-":
            raise KeyError(name)
        return str(text)

    return {name: REFERENCE.sub(value, text) for name, text in values.items()}


def example() -> dict[str, str]:
    lines = (PLACE / ".env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def kind(name: str) -> dict[str, Any]:
    return next(found for found in OBJECTS if found["kind"] == name)


def pod() -> dict[str, Any]:
    return dict(kind("Deployment")["spec"]["template"]["spec"])


def test_compose_file_fits_the_schema() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    checked = subprocess.run([*command, PLACE / "compose.yaml"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_compose_wants_every_secret_from_the_environment() -> None:
    given = dict.fromkeys(SECRETS, "given")
    for service in COMPOSE["services"].values():
        values = service["environment"]
        needed = {n for text in values.values() for n, k, _ in REFERENCE.findall(text) if k == "?"}
        assert needed <= SECRETS
        interpolated(values, given)
        for name in needed:
            with pytest.raises(KeyError, match=name):
                interpolated(values, {n: v for n, v in given.items() if n != name})
    server = COMPOSE["services"]["server"]["environment"]
    assert {name for name, value in interpolated(server, given).items() if value == "given"} == (
        SECRETS
    )


def test_the_example_names_every_variable_and_no_secret() -> None:
    used = {name for name, _, _ in REFERENCE.findall((PLACE / "compose.yaml").read_text())}
    assert set(example()) == used
    assert {name for name, value in example().items() if name in SECRETS and value} == set()
    server = COMPOSE["services"]["server"]["environment"]
    secrets = dict.fromkeys(SECRETS, "given")
    assert interpolated(server, secrets) == interpolated(server, example() | secrets)


def test_compose_publishes_the_server_on_loopback_and_nothing_else() -> None:
    ports = {n: s["ports"] for n, s in COMPOSE["services"].items() if "ports" in s}
    found = interpolated(dict(enumerate(ports.pop("server"))), {})
    assert list(found.values()) == ["127.0.0.1:5000:5000"]
    assert ports == {}


def test_compose_migrates_once_before_the_server_starts() -> None:
    services = COMPOSE["services"]
    assert services["server"]["depends_on"]["migrate"] == {
        "condition": "service_completed_successfully"
    }
    assert services["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert services["migrate"]["restart"] == "no"
    assert {n for n, s in services.items() if s["restart"] == "unless-stopped"} == {
        n for n, s in services.items() if "healthcheck" in s
    }


@pytest.mark.parametrize("found", OBJECTS, ids=lambda o: f"{o['kind']} {o['metadata']['name']}")
def test_kubernetes_objects_fit_the_schema(found: dict[str, Any]) -> None:
    kubernetes_validate.validate(found, kubernetes_validate.latest_version(), strict=True)


def test_kubernetes_pods_are_confined_and_bounded() -> None:
    for found in (kind("Deployment"), kind("StatefulSet")):
        spec = found["spec"]["template"]["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["resources"]["limits"].keys() == {"cpu", "memory"}
        for container in spec["containers"]:
            assert {"readinessProbe", "livenessProbe"} <= container.keys()


def test_kubernetes_secrets_are_references() -> None:
    assert "Secret" not in {found["kind"] for found in OBJECTS}
    assert not SECRETS & kind("ConfigMap")["data"].keys()
    wanted = {"server": SECRETS, "migrate": {"PGPASSWORD"}}
    for container in [*pod()["initContainers"], *pod()["containers"]]:
        keys = {e["name"]: e["valueFrom"]["secretKeyRef"]["key"] for e in container["env"]}
        assert keys == {name: name for name in wanted[container["name"]]}


def test_kubernetes_keeps_its_own_variables_to_itself() -> None:
    """A Service called mlflow would set MLFLOW_PORT=tcp://…, which MLflow reads as its port."""
    assert pod()["enableServiceLinks"] is False


def test_both_give_the_server_the_same_settings() -> None:
    compose = interpolated(
        COMPOSE["services"]["server"]["environment"], dict.fromkeys(SECRETS, "given")
    )
    kubernetes = kind("ConfigMap")["data"]
    differ = {n for n in kubernetes if compose[n] != kubernetes[n]}
    assert differ == {"PGHOST", "MLFLOW_SERVER_ALLOWED_HOSTS"}
    assert compose.keys() - kubernetes.keys() == SECRETS
    assert compose["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] == "false"
    for settings in (compose, kubernetes):
        hosts = settings["MLFLOW_SERVER_ALLOWED_HOSTS"].split(",")
        # A name that ends in a star, but for its port, could be a stranger's.
        assert [host for host in hosts if host.removesuffix(":*").endswith("*")] == []


def test_mlflow_reads_the_users_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_AUTH_CONFIG_PATH", str(PLACE / "basic_auth.ini"))
    monkeypatch.delenv("MLFLOW_AUTH_ADMIN_PASSWORD", raising=False)
    found = read_auth_config()
    assert (found.default_permission, found.admin_password) == ("READ", None)
    assert found.database_uri == kind("ConfigMap")["data"]["MLFLOW_BACKEND_STORE_URI"]


def test_the_image_holds_what_is_tested() -> None:
    text = (PLACE / "Dockerfile").read_text()
    pins = dict(re.findall(r"([\w-]+)(?:\[\w+\])?==([\d.]+)", text))
    assert {"mlflow", "psycopg2-binary", "boto3"} <= pins.keys()
    # Not what is installed, which in the environment of `make minimum` is older.
    tested = dict(re.findall(r"(?m)^([\w-]+)==([\d.]+)$", CONSTRAINTS))
    assert {name: tested.get(name) or version(name) for name in pins} == pins
    images = {*re.findall(r"calsweep-mlflow:([\d.]+)", (PLACE / "compose.yaml").read_text())}
    images |= {*re.findall(r"calsweep-mlflow:([\d.]+)", (PLACE / "kubernetes.yaml").read_text())}
    assert images == {pins["mlflow"]}

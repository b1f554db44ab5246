"""The launcher files, read by what reads them: Ray, EC2 (moto), Google's own description."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import boto3
import googleapiclient
import jsonschema
import pytest
import yaml
from moto import mock_aws
from moto.ec2.models import instance_types
from ray.autoscaler._private import commands
from ray.autoscaler._private.providers import _get_node_provider
from ray.autoscaler._private.util import prepare_config, validate_config
from ray.autoscaler.tags import TAG_RAY_NODE_KIND

ROOT = Path(__file__).parents[2]
CLOUDS = ["aws", "gcp"]
PROFILES = ("calsweep-head", "calsweep-worker")
REQUEST_OR_RESOURCE = ("aws:RequestTag", "ec2:ResourceTag")
"""Condition keys: the tags that a request sets, and those that its object has."""
LAUNCHERS = ["local", *CLOUDS]
SECRET = re.compile(
    r"PRIVATE KEY|AKIA[0-9A-Z]{16}|(?i:password|secret|token)\s*[=:]\s*[\"']?[0-9a-f]{16}"
)


def launcher(name: str) -> dict[str, Any]:
    loaded = yaml.safe_load((ROOT / "cluster" / f"{name}.yaml").read_text())
    assert isinstance(loaded, dict)
    return loaded


def starts(config: dict[str, Any], kind: str) -> str:
    """The one command that starts Ray on this kind of machine."""
    (command,) = (line for line in config[f"{kind}_start_ray_commands"] if "ray start" in line)
    return str(command)


@pytest.mark.parametrize("name", CLOUDS)
def test_ray_accepts_the_file_and_nothing_misspelt(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    validate_config(prepare_config(launcher(name)))
    misspelt = launcher(name) | {"max_worker": 3}
    with pytest.raises(jsonschema.ValidationError, match="max_worker"):
        validate_config(prepare_config(misspelt))


def test_ray_keeps_all_of_ones_own_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    prepared = prepare_config(launcher("local"))
    validate_config(prepared)
    (machines,) = prepared["available_node_types"].values()
    count = len(prepared["provider"]["worker_ips"])
    assert machines["min_workers"] == machines["max_workers"] == prepared["max_workers"] == count
    assert "RAY_enable_autoscaler_v2=0 ray start" in starts(prepared, "head")


@pytest.mark.parametrize("name", LAUNCHERS)
def test_the_cluster_is_closed(name: str) -> None:
    config = launcher(name)
    for kind in ("head", "worker"):
        assert re.search(r"RAY_AUTH_MODE=token( \S+=\S+)* ray start", starts(config, kind))
        assert "RAY_USAGE_STATS_ENABLED=0" in starts(config, kind), "nothing is told home"
    assert "--dashboard-host=127.0.0.1" in starts(config, "head")
    assert "0.0.0.0" not in json.dumps(config)
    assert config["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"


def test_the_documentation_names_every_port_that_is_fixed() -> None:
    commands = "".join(starts(launcher("local"), kind) for kind in ("head", "worker"))
    fixed = set(re.findall(r"-?port=(\d+)", commands))
    assert fixed == {"6379", "6380", "6381", "6382", "6383", "6384"}
    section = (ROOT / "cluster" / "README.md").read_text().split("## Which port is open where")[1]
    named = re.findall(r"^\| ([\d, –]+) \|", section, re.MULTILINE)
    assert fixed <= set(re.findall(r"\d+", " ".join(named)))


@pytest.mark.parametrize("name", LAUNCHERS)
def test_the_package_and_all_it_is_built_from_are_brought(name: str) -> None:
    config = launcher(name)
    mounts = config["file_mounts"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    files = ["pyproject.toml", "constraints.txt", project["project"]["readme"]]
    packages = project["tool"]["setuptools"]["packages"]["find"]["include"]
    wanted = [*files, *project["project"]["license-files"], *(p.rstrip("*") for p in packages)]
    assert mounts == {f"~/calsweep/{path}": path for path in wanted} | {
        "~/.ray/auth_token": "~/.ray/auth_token"
    }
    assert all((ROOT / path).exists() for path in wanted)
    for pattern in config["rsync_exclude"]:  # "data" would leave out calibration/data
        for package in packages:
            assert not list((ROOT / package.rstrip("*")).rglob(f"{pattern}/**/*.py"))
    (setup,) = config["setup_commands"]
    assert "CALSWEEP_STORE=" in setup
    assert setup.endswith("bash ~/calsweep/cluster/setup.sh")


def statements(kind: str) -> list[dict[str, Any]]:
    """What the policy of this kind of machine allows."""
    policy = json.loads((ROOT / "cluster" / "iam" / f"aws-{kind}.json").read_text())
    found: list[dict[str, Any]] = policy["Statement"]
    assert {each["Effect"] for each in found} == {"Allow"}
    return found


def head_may(action: str, resource: str, **context: str) -> bool:
    """Whether AWS lets the head do this, by its policy; the context has the keys of conditions."""

    def listed(value: str | list[str], name: str) -> bool:
        return any(
            fnmatchcase(name, each) for each in ([value] if isinstance(value, str) else value)
        )

    for each in statements("head"):
        within = listed(each.get("Resource", "*"), resource)
        within &= not listed(each.get("NotResource", []), resource)
        wanted = each.get("Condition", {"StringEquals": {}})
        assert set(wanted) == {"StringEquals"}
        met = all(context.get(key) == value for key, value in wanted["StringEquals"].items())
        if listed(each["Action"], action) and within and met:
            return True
    return False


def test_the_head_may_start_and_end_its_own_workers_and_no_other_machine() -> None:
    machine, role = "arn:aws:ec2:us-west-2:1:instance/i-1", "arn:aws:iam::1:role/calsweep-worker"
    named = launcher("aws")["cluster_name"]
    asked, marked = ({f"{key}/ray-cluster-name": named} for key in REQUEST_OR_RESOURCE)
    at_start, for_ec2 = {"ec2:CreateAction": "RunInstances"}, "ec2.amazonaws.com"
    assert head_may("ec2:DescribeInstances", "*")
    assert head_may("ec2:RunInstances", machine, **asked)
    assert head_may("ec2:RunInstances", "arn:aws:ec2:us-west-2::image/ami-1")
    assert head_may("ec2:CreateTags", machine, **asked, **at_start)
    assert head_may("ec2:CreateTags", machine, **marked), "Ray keeps their state in tags"
    assert head_may("ec2:TerminateInstances", machine, **marked)
    assert head_may("iam:PassRole", role, **{"iam:PassedToService": for_ec2})
    assert not head_may("ec2:RunInstances", machine), "none that it could not end"
    assert not head_may("ec2:CreateTags", machine, **asked), "else it makes any machine its own"
    assert not head_may("ec2:TerminateInstances", machine)
    assert not head_may("iam:PassRole", role, **{"iam:PassedToService": "lambda.amazonaws.com"})
    assert not head_may("iam:PassRole", role.replace("worker", "head"))


def test_workers_may_use_the_store_and_nothing_else() -> None:
    worker = statements("worker")
    allowed = {action for each in worker for action in each["Action"]}
    assert {action.partition(":")[0] for action in allowed} == {"s3"}
    assert not any("*" in action for action in allowed)
    assert {each["Resource"].partition("/")[0] for each in worker} == {"arn:aws:s3:::EDIT-bucket"}
    groups = launcher("gcp")["available_node_types"]
    accounts = {
        each["email"].partition("@")[0]
        for group in groups.values()
        for each in group["node_config"].get("serviceAccounts", [])
    }
    assert accounts == {"calsweep-worker"}


def test_the_image_is_baked_of_what_the_launchers_bring() -> None:
    baked = (ROOT / "cluster" / "image.pkr.hcl").read_text()
    (listed,) = re.findall(r"files = \[(.*?)\]", baked, re.DOTALL)
    files = re.findall(r'"([^"]+)"', listed)
    for name in CLOUDS:
        mounts = launcher(name)["file_mounts"]
        assert sorted(files) == sorted(path for path in mounts.values() if "~" not in path)
        (setup,) = launcher(name)["setup_commands"]
        for setting in re.findall(r"CALSWEEP_(?:EXTRAS|PIP)=(?:'[^']*'|\S+)", setup):
            assert setting in baked, "else the first boot would install again"
    assert baked.count("{") == baked.count("}")
    assert "rm -f ~/.ray/auth_token" in baked


@pytest.mark.parametrize("secret", ["", "cluster/mlflow/.env", "cluster/s3.env", "sweeps/key.pem"])
def test_nothing_that_may_be_secret_is_baked(secret: str, tmp_path: Path) -> None:
    """The documentation puts the passwords of an MLflow server into ``cluster/mlflow/.env``."""
    baked = (ROOT / "cluster" / "image.pkr.hcl").read_text()
    (listed,) = re.findall(
        r'provisioner "shell-local" \{\s*inline = \[(.*?)\n    \]', baked, re.DOTALL
    )
    lines = re.findall(r'"(.*)"', listed)
    for path in ("calibration", "sweeps", "cluster/mlflow"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "cluster" / "mlflow" / ".env.example").touch()
    if secret:
        (tmp_path / secret).touch()
    ended = subprocess.run(["sh", "-ec", "\n".join(lines)], cwd=tmp_path, capture_output=True)
    assert ended.returncode == bool(secret)
    assert ended.stdout.decode().strip() == secret


@pytest.mark.parametrize("name", CLOUDS)
def test_workers_are_spot_machines_with_gpus_that_come_and_go(name: str) -> None:
    types = launcher(name)["available_node_types"]
    head = types.pop(launcher(name)["head_node_type"])
    assert head["resources"] == {"CPU": 0}
    assert "spot" not in json.dumps(head).lower()
    assert sum("gpu" in group for group in types) == 2
    for group in types.values():
        assert "spot" in json.dumps(group["node_config"]).lower()
        assert group["max_workers"] > group["min_workers"]


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray writes the key pair that it makes into the home directory."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    (tmp_path / ".ssh").mkdir()


@pytest.mark.slow
@pytest.mark.usefixtures("cloud")
def test_ray_makes_every_kind_of_machine_on_ec2(monkeypatch: pytest.MonkeyPatch) -> None:
    config = launcher("aws")
    region = config["provider"]["region"]
    named = {g["node_config"]["InstanceType"] for g in config["available_node_types"].values()}
    offered = {name: instance_types.INSTANCE_TYPES[name] for name in named}
    monkeypatch.setattr(instance_types, "INSTANCE_TYPES", offered)  # of 900: describing takes time
    with mock_aws():
        ec2 = boto3.client("ec2", region_name=region)
        image = ec2.register_image(Name="ubuntu", RootDeviceName="/dev/sda1")["ImageId"]
        for name in PROFILES:
            boto3.client("iam").create_instance_profile(InstanceProfileName=name)
        # As the documentation makes it, before the first `ray up`.
        own = ec2.create_security_group(GroupName="calsweep", Description="calsweep")["GroupId"]
        ssh = {"FromPort": 22, "ToPort": 22, "IpProtocol": "tcp"}
        ssh |= {"IpRanges": [{"CidrIp": "203.0.113.0/24"}]}
        inside = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": own}]}
        ec2.authorize_security_group_ingress(GroupId=own, IpPermissions=[ssh, inside])
        for group in config["available_node_types"].values():
            assert group["node_config"].pop("SecurityGroupIds") == ["sg-00000000000000000"]
            group["node_config"] |= {"ImageId": image, "SecurityGroupIds": [own]}
        resolved = commands._bootstrap_config(config, no_config_cache=True)
        groups = resolved["available_node_types"]
        provider = _get_node_provider(resolved["provider"], resolved["cluster_name"])
        for group in groups.values():
            provider.create_node(group["node_config"], {TAG_RAY_NODE_KIND: "worker"}, 1)
        machines = [m for r in ec2.describe_instances()["Reservations"] for m in r["Instances"]]
        rules = [g["IpPermissions"] for g in ec2.describe_security_groups()["SecurityGroups"]]
    assert {name: group["resources"].get("GPU") for name, group in groups.items()} == {
        "head": None,
        "gpu": 1,
        "gpu4": 4,
        "cpu": None,
    }
    spot = {m["InstanceType"]: m.get("InstanceLifecycle") == "spot" for m in machines}
    assert spot == {
        "m7i.xlarge": False,
        "g6.xlarge": True,
        "g6.12xlarge": True,
        "c7i.4xlarge": True,
    }
    assert all(m["SecurityGroups"][0]["GroupId"] == own for m in machines)
    doors = [(rule["FromPort"], r["CidrIp"]) for g in rules for rule in g for r in rule["IpRanges"]]
    assert doors == [(22, "203.0.113.0/24")], "Ray opens none of its own"
    own_tag = {"Key": "ray-cluster-name", "Value": config["cluster_name"]}
    assert all(own_tag in m["Tags"] for m in machines), "the head's policy demands it"
    roles = {m["InstanceType"]: m["IamInstanceProfile"]["Arn"].rpartition("/")[2] for m in machines}
    assert {kind for kind, role in roles.items() if role == PROFILES[0]} == {"m7i.xlarge"}
    assert set(roles.values()) == set(PROFILES)


def faults(value: Any, schema: dict[str, Any], schemas: dict[str, Any], at: str) -> list[str]:
    """What a value has that Google's API does not know, by its discovery document."""
    if "$ref" in schema:
        schema = schemas[schema["$ref"]]
    if "properties" in schema and isinstance(value, dict):
        known = schema["properties"]
        unknown = [f"{at}.{key} is unknown" for key in value if key not in known]
        inside = [(key, known[key], item) for key, item in value.items() if key in known]
        return [*unknown, *(f for k, s, v in inside for f in faults(v, s, schemas, f"{at}.{k}"))]
    if schema["type"] == "array" and isinstance(value, list):
        items = schema["items"]
        return [
            f for i, item in enumerate(value) for f in faults(item, items, schemas, f"{at}[{i}]")
        ]
    if schema.get("format") == "int64":  # written as a string or a number
        return [] if str(value).isdecimal() else [f"{at} is not a number"]
    types = {"string": str, "boolean": bool, "integer": int}
    if not isinstance(value, types[schema["type"]]):
        return [f"{at} is not of type {schema['type']}"]
    allowed = schema.get("enum", [value])
    return [] if value in allowed else [f"{at} is none of {allowed}"]


def test_google_knows_every_field_of_every_machine() -> None:
    documents = Path(googleapiclient.__file__).parent / "discovery_cache" / "documents"
    schemas = json.loads((documents / "compute.v1.json").read_text())["schemas"]
    for name, group in launcher("gcp")["available_node_types"].items():
        assert faults(group["node_config"], {"$ref": "Instance"}, schemas, name) == []
    wrong = {
        "machinetype": "n2",
        "scheduling": {"provisioningModel": "CHEAP"},
        "disks": [{"boot": 1}],
    }
    found = faults(wrong, {"$ref": "Instance"}, schemas, "m")
    assert [fault.split(" ")[0] for fault in found] == [
        "m.machinetype",
        "m.scheduling.provisioningModel",
        "m.disks[0].boot",
    ]


def test_no_file_for_clusters_holds_a_secret() -> None:
    files = [path for path in (ROOT / "cluster").rglob("*") if path.is_file()]
    texts = {path: path.read_text() for path in files if path.suffix != ".pyc"}
    assert SECRET.search("token: 0123456789abcdef0123")
    assert [path.name for path, text in texts.items() if SECRET.search(text)] == []

"""The manifests for KubeRay: the form, and what is promised of them."""

from __future__ import annotations

import copy
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from pydantic import ValidationError

from tests.cluster.kuberay_schema import ClusterSpec, Pod, RayCluster, RayJob

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "cluster" / "kuberay"
KUBERNETES = "1.30"


def manifest(name: str) -> dict[str, Any]:
    loaded = yaml.safe_load((MANIFESTS / name).read_text())
    assert isinstance(loaded, dict)
    return loaded


def clusters() -> list[ClusterSpec]:
    job = RayJob.model_validate(manifest("rayjob.yaml"))
    return [RayCluster.model_validate(manifest("raycluster.yaml")).spec, job.spec.ray_cluster_spec]


def pods() -> list[Pod]:
    submitter = RayJob.model_validate(manifest("rayjob.yaml")).spec.submitter_pod_template
    return [*(pod for cluster in clusters() for pod in cluster.pods()), submitter]


def check_pod(template: Pod) -> None:
    named = {**template["metadata"], "name": "pod"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": template["spec"]}
    kubernetes_validate.validate(pod, KUBERNETES, strict=True)


def test_the_manifests_have_the_operators_form() -> None:
    cluster, job = clusters()
    assert cluster == job, "the spec stands in both files"
    for pod in pods():
        check_pod(pod)
    kubernetes_validate.validate(manifest("networkpolicy.yaml"), KUBERNETES, strict=True)
    assert {path.name for path in MANIFESTS.iterdir()} == {
        "raycluster.yaml",
        "rayjob.yaml",
        "networkpolicy.yaml",
    }


def test_a_misspelt_field_is_found_inside_and_outside_a_pod() -> None:
    cluster = manifest("raycluster.yaml")
    cluster["spec"]["workerGroupSpecs"][0]["maxReplica"] = 3
    with pytest.raises(ValidationError, match="maxReplica"):
        RayCluster.model_validate(cluster)
    pod = copy.deepcopy(pods()[1])
    pod["spec"]["containers"][0]["resource"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="resource"):
        check_pod(pod)


@pytest.mark.parametrize("pod", pods(), ids=lambda pod: pod["spec"]["containers"][0]["name"])
def test_every_pod_is_confined_and_bounded(pod: Pod) -> None:
    spec = pod["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"]["drop"] == ["ALL"]
        assert {"cpu", "memory"} <= set(container["resources"]["limits"])
        assert "env" not in container, "a setting may be secret: it comes from outside"
    guarded = manifest("networkpolicy.yaml")["spec"]["podSelector"]["matchLabels"]
    assert guarded.items() <= pod["metadata"]["labels"].items()


def test_the_cluster_is_closed_scales_and_shares_a_store() -> None:
    for cluster in clusters():
        assert cluster.auth_options.mode == "token"
        assert cluster.head_group_spec.service_type == "ClusterIP"
        assert cluster.enable_in_tree_autoscaling
        groups = cluster.worker_group_specs
        gpus = [
            int(group.template["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"])
            for group in groups
        ]
        assert gpus == [1, 4]
        assert all(group.max_replicas > group.min_replicas for group in groups)
        for pod in cluster.pods():
            settings = pod["spec"]["containers"][0]["envFrom"]
            assert settings[0] == {"configMapRef": {"name": "calsweep"}}, "CALSWEEP_STORE"


def test_the_job_can_be_repeated_and_leaves_nothing() -> None:
    job = RayJob.model_validate(manifest("rayjob.yaml")).spec
    assert job.shutdown_after_job_finishes
    assert (
        job.backoff_limit == 2
    )  # a new cluster goes on with the store; a bad spec ends in minutes
    assert job.entrypoint.startswith("python -m cluster.sweep /specs/")
    mounts = job.ray_cluster_spec.head_group_spec.template["spec"]["containers"][0]["volumeMounts"]
    assert "/specs" in [mount["mountPath"] for mount in mounts]


def test_the_versions_are_those_that_are_pinned() -> None:
    pins = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line and not line.startswith("#")
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {cluster.ray_version for cluster in clusters()} == {pins["ray"]}
    images = {container["image"] for pod in pods() for container in pod["spec"]["containers"]}
    assert images == {f"registry.example.com/calsweep:{project['version']}"}

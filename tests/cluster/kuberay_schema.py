"""The fields of KubeRay's RayCluster and RayJob (ray.io/v1, as of KubeRay 1.6) that we use.

KubeRay's own definition comes with its Helm chart only. This one is stricter: a field that is not
named here is an error, as is a value of another type. What is inside a pod is Kubernetes' own:
``pods`` hands it out to be checked against Kubernetes' schemas.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
Pod = dict[str, Any]


class Fields(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)


class Metadata(Fields):
    name: Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]{0,40}[a-z0-9])?$")]


class AuthOptions(Fields):
    mode: Literal["disabled", "token"]
    secret_name: str


class AutoscalerOptions(Fields):
    version: Literal["v1", "v2"]
    idle_timeout_seconds: Count
    upscaling_mode: Literal["Default", "Aggressive", "Conservative"]
    resources: dict[str, Any]
    security_context: dict[str, Any]


class HeadGroup(Fields):
    service_type: Literal["ClusterIP", "NodePort", "LoadBalancer"]
    ray_start_params: dict[str, str]
    template: Pod


class WorkerGroup(Fields):
    group_name: str
    replicas: Count
    min_replicas: Count
    max_replicas: Count
    ray_start_params: dict[str, str]
    template: Pod

    @model_validator(mode="after")
    def _ordered(self) -> WorkerGroup:
        if not self.min_replicas <= self.replicas <= self.max_replicas:
            raise ValueError(f"{self.group_name}: replicas is not between its bounds")
        return self


class ClusterSpec(Fields):
    ray_version: str
    auth_options: AuthOptions
    enable_in_tree_autoscaling: bool
    autoscaler_options: AutoscalerOptions
    head_group_spec: HeadGroup
    worker_group_specs: list[WorkerGroup]

    def pods(self) -> Iterator[Pod]:
        """The templates of the head and of every group."""
        yield self.head_group_spec.template
        yield from (group.template for group in self.worker_group_specs)


class RayCluster(Fields):
    api_version: Literal["ray.io/v1"]
    kind: Literal["RayCluster"]
    metadata: Metadata
    spec: ClusterSpec


class JobSpec(Fields):
    entrypoint: str
    submission_mode: Literal["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"]
    backoff_limit: Count
    active_deadline_seconds: Annotated[int, Field(gt=0)]
    shutdown_after_job_finishes: bool
    ttl_seconds_after_finished: Count
    submitter_pod_template: Pod
    ray_cluster_spec: ClusterSpec


class RayJob(Fields):
    api_version: Literal["ray.io/v1"]
    kind: Literal["RayJob"]
    metadata: Metadata
    spec: JobSpec

"""The memory of a cluster's GPUs."""

from __future__ import annotations

from typing import Any

import ray
import torch
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sweeps.ray_backend.gpu_share import ASSUMED_MEMORY

_ANSWER_SECONDS = 60.0


def least_memory() -> float:
    """The bytes of memory of the smallest GPU in the cluster that answers.

    If none does (they are busy, or Ray was given a number of GPUs without any CUDA device), a
    common size is assumed.
    """
    look = ray.remote(num_cpus=0, num_gpus=0.01)(_memory)
    asked = [
        look.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ).remote()
        for node in ray.nodes()
        if node["Alive"] and node["Resources"].get("GPU")
    ]
    answered, late = ray.wait(asked, num_returns=len(asked), timeout=_ANSWER_SECONDS)
    for reference in late:
        ray.cancel(reference, force=True)
    found = [memory for reference in answered if (memory := _answer(reference))]
    return min(found, default=ASSUMED_MEMORY)


def _answer(reference: Any) -> float:
    try:
        return float(ray.get(reference))
    except ray.exceptions.RayError:  # a node that cannot answer will fail visibly when it trains
        return 0.0


def _memory() -> float:
    if not torch.cuda.is_available():
        return 0.0
    count = torch.cuda.device_count()
    return float(min(torch.cuda.get_device_properties(i).total_memory for i in range(count)))

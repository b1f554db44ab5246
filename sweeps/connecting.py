"""The way to Ray: one on this machine, or a cluster that is running."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path
from typing import Any, NamedTuple

from sweeps.packing import stage
from sweeps.spec import LoadedSpec, SpecError

INSIDE_A_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Ray sets it for what was submitted; the job has brought the user's modules along then."""


class Cluster(NamedTuple):
    """Where the trials run: ``address`` None means a Ray of the sweep's own on this machine.

    ``concurrent`` asks for room for so many trials at once, whatever there is now.
    """

    address: str | None = None
    concurrent: int | None = None


def connect(cluster: Cluster, loaded: LoadedSpec, scratch: Path) -> None:
    """Connect this process. Raises ``SpecError`` if nothing answers at the address.

    The user's own modules that the spec names are brought to the nodes of a cluster.
    """
    import ray

    on_sigterm = signal.getsignal(signal.SIGTERM)
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if cluster.address is None:
        # Without "local" Ray would join any cluster it finds here.
        options |= {"address": "local", "include_dashboard": False}
    else:
        options |= {"address": cluster.address}
        if INSIDE_A_JOB not in os.environ and stage(loaded, Path.cwd(), scratch / "modules"):
            options["runtime_env"] = {"working_dir": str(scratch / "modules")}
    try:
        ray.init(**options)
    except (ConnectionError, ValueError, ImportError, RuntimeError) as error:
        if cluster.address is None:
            raise
        raise SpecError(_refusal(cluster.address, error)) from None
    finally:
        signal.signal(signal.SIGTERM, on_sigterm)  # Ray has put its own there


def _refusal(address: str, error: Exception) -> str:
    said = " ".join(str(error).split())
    if "authentication" in said.lower() or "token" in said.lower():
        return (
            f"--address {address}: the Ray cluster there refuses this process's token; set "
            "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH to the file with the cluster's token"
        )
    return (
        f"--address {address}: no Ray cluster answers there: {said[:300]}; give the address on a "
        "machine of the cluster, or use calsweep submit from elsewhere"
    )

"""The version of NVIDIA's driver, as the kernel module tells it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeps.host.nvidia import driver_version


@pytest.mark.parametrize(
    ("line", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19",
            "535.104.05",
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build",
            "570.86.15",
        ),
        ("something else 1.2 3", ""),
    ],
)
def test_the_driver_is_the_loaded_one(tmp_path: Path, line: str, version: str) -> None:
    assert driver_version(tmp_path) == ""
    path = tmp_path / "proc/driver/nvidia/version"
    path.parent.mkdir(parents=True)
    path.write_text(f"{line}\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n")
    assert driver_version(tmp_path) == version

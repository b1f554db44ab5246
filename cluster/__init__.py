"""Running sweeps on other machines."""

__distribution__ = "calsweep"

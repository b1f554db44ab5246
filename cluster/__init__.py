"""How a sweep runs elsewhere than on this machine."""

__distribution__ = "calsweep"

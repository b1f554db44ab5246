"""What other packages register."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from calibration import registry
from calibration.registry import Registry, UnknownNameError


def test_a_broken_plug_in_takes_nothing_else_away(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint("broken", "no_such_module_of_mine:Thing", "calsweep.things"),
        EntryPoint("ours", "json:dumps", "calsweep.things"),
        EntryPoint("good", "json:loads", "calsweep.things"),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    things: Registry[object] = Registry("thing", "calsweep.things")
    things.register("ours")(len)
    with pytest.warns(UserWarning, match="cannot be loaded") as said:
        assert list(things) == ["good", "ours"]
    assert "thing 'broken' cannot be loaded: ModuleNotFoundError" in str(said[0].message)
    assert "thing 'ours' cannot be loaded: ValueError: two things" in str(said[1].message)
    assert things["ours"] is len
    with pytest.raises(UnknownNameError, match="'broken' cannot be loaded"):
        things["broken"]

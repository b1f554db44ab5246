"""A sweep's part of the store: its own files, its state, its lock, its studies' suggestions."""

from __future__ import annotations

from typing import Any

from sweeps.store.layout import (
    SWEEP_STATE,
    study_directory,
    sweep_directory,
    sweep_file,
)
from sweeps.store.lock import SweepLock, sweep_lock
from sweeps.store.opened import OpenedStore


class SweepFiles(OpenedStore):
    """The directory of each sweep, and the suggestions of its studies."""

    def write_file(self, sweep: str, name: str, content: bytes) -> None:
        """Write one of a sweep's result files, such as ``figures/x.png``."""
        self._files.write(sweep_file(sweep, name), content)

    def read_file(self, sweep: str, name: str) -> bytes | None:
        """One of a sweep's result files, or None."""
        return self._files.read(sweep_file(sweep, name))

    def files(self, sweep: str, under: str = "") -> list[str]:
        """The names of a sweep's result files, or of those in its directory ``under``."""
        if not under:
            return self._files.names(sweep_directory(sweep))
        return [f"{under}/{name}" for name in self._files.names(sweep_file(sweep, under))]

    def location(self, sweep: str, name: str = "") -> str:
        """The location of a sweep's directory or file, for display."""
        return f"{self.root}/{sweep_file(sweep, name) if name else sweep_directory(sweep)}"

    def lock(self, sweep: str) -> SweepLock:
        """Held by the one driver of a sweep; entering it raises ``LockedError``."""
        return sweep_lock(self._files, sweep_directory(sweep))

    def state(self, sweep: str) -> dict[str, Any] | None:
        """The values last written by ``write_state``, or None."""
        path = f"{sweep_directory(sweep)}/{SWEEP_STATE}"
        return self._sealed.read(path, sweep, lambda content: self._sealed.content(path, content))

    def write_state(self, sweep: str, values: dict[str, Any]) -> None:
        """Replace the state that a sweep keeps between invocations besides its spec."""
        self._sealed.write(f"{sweep_directory(sweep)}/{SWEEP_STATE}", values)

    def suggestions(self, sweep: str, study: str) -> dict[int, dict[str, Any]]:
        """The persisted suggestions of one study, by number."""
        found = self._sealed.read_all(study_directory(sweep, "suggestions", study), sweep, dict)
        return {int(name): found[name] for name in sorted(found) if name.isdecimal()}

    def write_suggestion(
        self, sweep: str, study: str, number: int, suggestion: dict[str, Any]
    ) -> None:
        """Persist suggestion ``number`` of a study before its training starts."""
        self._sealed.write(_suggestion(sweep, study, number), suggestion)

    def reject_suggestion(self, sweep: str, study: str, number: int, reason: str) -> None:
        """Set aside a suggestion that its study cannot have made."""
        self._sealed.reject(_suggestion(sweep, study, number), sweep, reason)

    def importance(self, sweep: str, study: str) -> dict[str, Any] | None:
        """The values last written by ``write_importance``, or None."""
        path = f"{study_directory(sweep, 'importance', study)}.json"
        return self._sealed.read(path, sweep, lambda c: self._sealed.content(path, c))

    def write_importance(self, sweep: str, study: str, importance: dict[str, Any]) -> None:
        """Store the importance of each hyperparameter in a study that has ended."""
        path = f"{study_directory(sweep, 'importance', study)}.json"
        self._sealed.write(path, importance)


def _suggestion(sweep: str, study: str, number: int) -> str:
    return f"{study_directory(sweep, 'suggestions', study)}/{number:06d}.json"

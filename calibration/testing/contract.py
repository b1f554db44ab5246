"""The error of every conformance check when a rule is broken."""

from __future__ import annotations

from collections.abc import Callable


class ContractError(AssertionError):
    """Raised by a check; says what was checked, which rule was broken and on what data."""


def require(holds: bool, about: str, rule: str) -> None:
    """Raise ``ContractError`` naming ``about`` and ``rule`` unless the rule holds."""
    if not holds:
        raise ContractError(f"{about}: {rule}")


def require_error(
    call: Callable[[], object], kind: type[Exception], words: tuple[str, ...], about: str, what: str
) -> None:
    """Raise ``ContractError`` unless ``call`` raises ``kind`` and its message has ``words``."""
    try:
        call()
    except kind as error:
        for word in words:
            rule = f"the error of {what} must name {word!r}: {error}"
            require(word in str(error), about, rule)
    else:
        raise ContractError(f"{about}: {what} must raise {kind.__name__}")


def require_complexity(found: object, about: str) -> None:
    """Raise ``ContractError`` unless a declared complexity can be compared with others."""
    whole = isinstance(found, int) and not isinstance(found, bool) and found >= 0
    rule = f"complexity must be a whole number from 0 (calibration.complexity), found {found!r}"
    require(whole, about, rule)

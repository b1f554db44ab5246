"""Whether a tracking server lets us in, asked before data are read: that may take a minute."""

from __future__ import annotations

from pathlib import Path


def check_server(given: str | None, path: Path) -> None:
    """Ask the server that is ``given``, or that the spec or suite at ``path`` names.

    Raises ``UserError`` if it refuses us, ``SpecError`` for what is not YAML. Whatever else is
    wrong with the file, those who read it whole will say.
    """
    from sweeps.spec.reading import parse, read_text
    from sweeps.spec.tracking_uri import SERVERS, tracking_problem
    from sweeps.tracking.mlflow.access import check_access

    written, _ = parse(path, read_text(path))
    tracking = written.get("tracking")
    named = tracking if isinstance(tracking, dict) else {"uri": tracking}
    uri, experiment = given or named.get("uri"), named.get("experiment") or written.get("name")
    if not (isinstance(uri, str) and isinstance(experiment, str)):
        return
    if uri.partition("://")[0] in SERVERS and tracking_problem(uri) is None:
        check_access(uri, experiment)

"""Check the access to a tracking server before data is read, which may take a minute."""

from __future__ import annotations

from pathlib import Path


def check_server(given: str | None, path: Path) -> None:
    """Check the server that is ``given``, or that the spec or suite at ``path`` names.

    Raises ``UserError`` if it refuses access, ``SpecError`` if the file is not YAML. Any other
    problem of the file is reported when it is loaded.
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

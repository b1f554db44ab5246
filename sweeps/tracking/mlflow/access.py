"""Check the access to a tracking server before hours of work depend on it."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from sweeps.errors import UserError
from sweeps.host.secrets import PASSWORD, masked, without_secrets
from sweeps.spec.tracking_uri import DATABASES, SERVERS
from sweeps.tracking.mlflow.database_file import check_database_file
from sweeps.tracking.mlflow.drivers import missing_driver, with_driver
from sweeps.tracking.mlflow.settings import mlflow_settings

if TYPE_CHECKING:
    from requests import Response

ANSWER_SECONDS = 5.0
"""How long a server may take to answer before it counts as unavailable."""
USERNAME, WORD = "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"
BUSY = (408, 425, 429)
"""Refusals that are temporary."""
WRITERS = ("EDIT", "MANAGE")
_REFUSALS = ("authentication failed", "no password supplied", "does not exist", "pg_hba.conf")
"""Messages of Postgres for errors that waiting does not resolve."""
_REMEDY = "have its owner or an admin grant EDIT, or name another in tracking.experiment"


def check_access(uri: str, experiment: str | None = None) -> None:
    """Raise ``UserError`` if a tracking server or database refuses us.

    User and password may be missing or wrong, the user may be allowed only to read the
    ``experiment``, or the server may not be MLflow; a database's driver may be missing, and a
    file may not be an MLflow database. A server that is unavailable is not an error, nor is one
    that cannot answer the question.
    """
    scheme = uri.partition("://")[0].partition("+")[0]
    if scheme in SERVERS:
        _check_server(uri, experiment)
    elif scheme in DATABASES:
        _check_database(uri)
    else:
        check_database_file(uri)


def _check_server(uri: str, experiment: str | None) -> None:
    if experiment is None:
        answer = _ask(uri, "/api/2.0/mlflow/experiments/search", max_results="1")
    else:
        place = "/api/2.0/mlflow/experiments/get-by-name"
        answer = _ask(uri, place, experiment_name=experiment)
    if answer is None:
        return
    if answer.status_code == 401:
        raise UserError(f"{_server(uri)} requires authentication: {_credentials_problem(uri)}")
    if answer.status_code == 403:
        raise UserError(_forbidden(uri, answer.text, experiment))
    if not _is_of_mlflow(answer):
        kind = answer.headers.get("Content-Type", "").partition(";")[0] or "nothing"
        raise UserError(
            f"{_server(uri)} is not an MLflow server: it answers {kind} (status "
            f"{answer.status_code}) where MLflow answers JSON; use the address of MLflow's own "
            "pages, up to the #"
        )
    if experiment is not None and _user(uri):
        _check_writing(uri, experiment, _found(answer, "experiment", "experiment_id"))


@mlflow_settings()
def _ask(uri: str, path: str, **query: str) -> Response | None:
    """The server's answer to a request like MLflow's own client's; None if it is unavailable."""
    from mlflow.exceptions import MlflowException
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import http_request
    from requests import RequestException
    from requests.exceptions import SSLError

    answers: list[Response] = []
    insecure: list[str] = []

    def ask() -> None:
        try:
            answer = http_request(  # type: ignore[no-untyped-call]
                get_default_host_creds(uri),  # type: ignore[no-untyped-call]
                path,
                "GET",
                params=query,
                max_retries=0,
                timeout=ANSWER_SECONDS,
                raise_on_status=False,
            )
            answers.append(answer)
        except (MlflowException, RequestException, OSError) as error:
            if isinstance(error.__context__, SSLError):
                insecure.append(str(error.__context__))

    # A server that answers byte by byte counts as unavailable; requests would wait for the last.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(2 * ANSWER_SECONDS)
    if insecure:
        message = without_secrets(" ".join(insecure[0].split()), uri)[-200:]
        raise UserError(
            f"{_server(uri)}: cannot make a secure connection: {message}; if its certificate is "
            "your own, name it in MLFLOW_TRACKING_SERVER_CERT_PATH"
        )
    return answers[0] if answers else None


def _is_of_mlflow(answer: Response) -> bool:
    """Whether an answer, even a refusal, can be MLflow's; a server error may be."""
    if answer.status_code >= 500 or answer.status_code in BUSY:
        return True
    try:
        message = answer.json()
    except ValueError:
        return False
    return isinstance(message, dict) and (answer.status_code == 200 or "error_code" in message)


def _found(answer: Response | None, *names: str) -> Any:
    """The value under these names in an answer; None if there is none."""
    if answer is None or answer.status_code != 200:
        return None
    try:
        found = answer.json()
        for name in names:
            found = found[name]
    except (ValueError, KeyError, TypeError):
        return None
    return found


def _check_writing(uri: str, experiment: str, number: Any) -> None:
    """Ask a server with users what ours may do; other servers do not know the request."""
    if number is None:  # it will be created, and its creator may write to it
        return
    about = {"username": _user(uri), "resource_type": "experiment", "resource_id": str(number)}
    permission = _found(_ask(uri, "/api/3.0/mlflow/users/permissions/get", **about), "permission")
    if permission is not None and permission not in WRITERS:
        raise UserError(
            f"{_server(uri)}: the user {_user(uri)!r} may not write to the experiment "
            f"{experiment!r} (permission {permission}); {_REMEDY}"
        )


def _credentials_problem(uri: str) -> str:
    from mlflow.utils.credentials import read_mlflow_creds

    if PASSWORD.search(uri):
        return "the user or the password in its address is wrong"
    found = read_mlflow_creds()
    if found.username and found.password:
        return f"the user in {USERNAME} ({found.username!r}) or the password in {WORD} is wrong"
    if os.environ.get("MLFLOW_TRACKING_TOKEN"):
        return "the token in MLFLOW_TRACKING_TOKEN is wrong or has expired"
    missing = [n for n, value in ((USERNAME, found.username), (WORD, found.password)) if not value]
    verb = "is" if len(missing) == 1 else "are"
    return f"set {USERNAME} and {WORD} in the environment ({' and '.join(missing)} {verb} missing)"


def _forbidden(uri: str, text: str, experiment: str | None) -> str:
    if "Invalid Host header" in text:
        host = urlsplit(uri).hostname
        return (
            f"{_server(uri)} does not answer to the name {host!r}; use the one it was set up "
            "with, or add this one to its allowed hosts"
        )
    what = "list experiments" if experiment is None else f"read the experiment {experiment!r}"
    return f"{_server(uri)}: the user {_user(uri)!r} may not {what}; {_REMEDY}"


def _user(uri: str) -> str:
    from mlflow.utils.credentials import read_mlflow_creds

    return urlsplit(uri).username or read_mlflow_creds().username or ""


def _server(uri: str) -> str:
    """The server's address, without a user."""
    parts = urlsplit(uri)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _check_database(uri: str) -> None:
    import sqlalchemy
    from sqlalchemy.exc import OperationalError, SQLAlchemyError
    from sqlalchemy.pool import NullPool

    try:
        url = sqlalchemy.make_url(with_driver(uri))
        url.get_dialect().import_dbapi()
    except ModuleNotFoundError as error:
        raise UserError(missing_driver(uri, error.name or "")) from None
    except (SQLAlchemyError, ValueError) as error:
        raise UserError(f"{masked(uri)}: {without_secrets(str(error), uri)}") from None
    if url.get_backend_name() != "postgresql":
        return
    timeout = {"connect_timeout": int(ANSWER_SECONDS)}
    try:
        sqlalchemy.create_engine(url, poolclass=NullPool, connect_args=timeout).connect().close()
    except OperationalError as error:
        message = without_secrets(str(error.orig).strip(), uri)
        if any(words in message for words in _REFUSALS):
            remedy = "the password is read from PGPASSWORD or from the URI"
            raise UserError(f"{masked(uri)}: {message.splitlines()[-1]} ({remedy})") from None

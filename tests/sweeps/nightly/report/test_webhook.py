"""The webhook, against a real server: what it is told, what it may do, what nobody sees."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from sweeps.errors import UserError
from sweeps.nightly.report import webhook
from sweeps.nightly.report.message import FORMS, Message
from sweeps.nightly.report.webhook import (
    check_url,
    ping,
    read_webhook,
    report_to,
    send,
    shown,
)

SECRET = "T0KEN-of-the-hook"


@contextmanager
def server(*answers: int) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that answers with these codes in turn, its address, and what it was sent."""
    received: list[dict[str, Any]] = []
    codes = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append({"path": self.path, "type": self.headers["Content-Type"]})
            received[-1]["message"] = json.loads(body)
            self.send_response(codes.pop(0) if len(codes) > 1 else codes[0])
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def do_GET(self) -> None:
            self.send_response(codes[0])
            self.end_headers()

        def log_message(self, *given: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield (
                f"http://127.0.0.1:{made.server_address[1]}/hooks/{SECRET}?token={SECRET}",
                received,
            )
        finally:
            made.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "WAITS", (0.0, 0.01, 0.01))


def test_the_message_arrives_as_json() -> None:
    message = {"suite": "nightly", "verdict": "fine", "sentences": ["ECE 0.1 → 0.2 · γ"]}
    with server(200) as (url, received):
        assert send(url, message) == ""
    (one,) = received
    assert one["message"] == message
    assert one["type"] == "application/json"
    assert SECRET in one["path"]


def test_a_server_in_trouble_is_asked_again() -> None:
    with server(503, 500, 204) as (url, received):
        assert send(url, {"suite": "s"}) == ""
    assert len(received) == 3


@pytest.mark.parametrize(("code", "tries"), [(500, 3), (403, 1), (302, 1)])
def test_a_failure_is_one_line_without_the_address(code: int, tries: int) -> None:
    with server(code) as (url, received):
        said = send(url, {"suite": "s"})
    assert len(received) == tries
    assert said == f"the webhook at http://127.0.0.1/*** failed: it answered {code}"


def test_a_server_that_is_not_there_is_one_line() -> None:
    with server(200) as (url, _):
        pass
    said = send(url, {"suite": "s"})
    assert "Connection refused" in said
    assert SECRET not in said
    assert "\n" not in said


@pytest.mark.parametrize(
    "url",
    [
        *("", "hooks.example.org/x", "ftp://host/x", "https://", "http://host:port/x"),
        *("http://a b", "https://hooks..example.org/x", f"http://{'a' * 64}.org/x"),
        *("http://127.0.0.1:9/ü", "https://ho\u200bst/x"),
    ],
)
def test_what_is_no_address_is_bad_input_and_not_repeated(url: str) -> None:
    with pytest.raises(UserError) as error:
        check_url(url, "--webhook")
    assert str(error.value) == "--webhook: not a valid address; write e.g. https://host/path"


def test_what_no_library_takes_is_one_line_too() -> None:
    said = send(f"https://hooks..example.org/{SECRET}", {"suite": "s"})
    assert said.startswith("the webhook at https://hooks..example.org/*** failed: ")
    assert SECRET not in said


def test_user_path_and_query_are_hidden() -> None:
    url = f"https://user:{SECRET}@hooks.example.org:8443/{SECRET}?key={SECRET}"
    check_url(url, "--webhook")
    assert shown(url) == "https://hooks.example.org/***"


MESSAGE = Message(
    suite="nightly",
    night="2026-11-17",
    verdict="regression",
    sentences=["blobs <b> & co: ECE 0.1 → 0.2: worse since 2026-11-03 (commits a…b), ongoing"] * 20,
    ongoing=True,
    report="/nights/report.html",
    links={"report": "https://ci.example.org/n/report.html"},
)


def test_forms_are_what_the_services_take() -> None:
    told = FORMS["slack"](MESSAGE)
    assert told["text"] == "nightly 2026-11-17: ongoing regression"
    kinds = [block["type"] for block in told["blocks"]]
    assert kinds == ["header", "section", "section"]
    texts = [block["text"]["text"] for block in told["blocks"]]
    assert "blobs &lt;b&gt; &amp; co" in texts[1]
    assert texts[1].endswith("… and 8 more.")
    assert texts[2] == "<https://ci.example.org/n/report.html|report>"
    assert all(len(text) <= 3000 for text in texts)
    card = FORMS["teams"](MESSAGE)["attachments"][0]["content"]
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
    assert card["body"][0]["text"] == told["text"]
    assert card["actions"] == [
        {
            "type": "Action.OpenUrl",
            "title": "report",
            "url": "https://ci.example.org/n/report.html",
        }
    ]
    for form in FORMS.values():
        bare = json.dumps(form(replace(MESSAGE, links={})), ensure_ascii=False)
        assert "/nights/report.html" in bare, "where nothing serves it, its path"


def test_the_form_stands_before_the_address() -> None:
    with server(200) as (url, received):
        for form in ("slack:", "teams:", "json:", ""):
            assert report_to(read_webhook(f"{form}{url}", "--webhook"), MESSAGE) == ""
    kinds = [sorted(each["message"]) for each in received]
    assert kinds[0] == ["blocks", "text"]
    assert kinds[1] == ["attachments", "type"]
    assert kinds[2] == kinds[3]
    assert received[3]["message"]["ongoing"] is True
    with pytest.raises(UserError, match="CALSWEEP_WEBHOOK: not a valid address"):
        read_webhook("slack:hooks.slack.com/x", "CALSWEEP_WEBHOOK")


def test_sentences_are_whole_and_fit_into_what_slack_takes() -> None:
    """What is said at their end, since when and whether it is news, must not be cut off."""
    ending = "p < 0.001 after correction over 135 tests): worse since 2026-11-03, ongoing"
    sentences = [f"{'<&>' * 30} {'x' * 160} {number} {ending}" for number in range(12)]
    for form, text in (
        ("slack", lambda told: told["blocks"][1]["text"]["text"]),
        ("teams", lambda told: "\n".join(block["text"] for block in _card(told)["body"][1:])),
    ):
        told = text(FORMS[form](replace(MESSAGE, sentences=sentences)))
        *some, last = told.splitlines()
        assert len(some) > 3
        assert all(each.endswith("ongoing") for each in some)
        assert last.endswith(f"… and {12 - len(some)} more.")
        assert len(told) <= 3000
        longest = text(FORMS[form](replace(MESSAGE, sentences=["&" * 10_000])))
        assert longest.endswith("…")
        assert len(longest) <= 3000


def _card(told: dict[str, Any]) -> dict[str, Any]:
    card: dict[str, Any] = told["attachments"][0]["content"]
    return card


def test_a_dead_mans_switch_is_asked_for() -> None:
    with server(200) as (url, _):
        assert ping(url) == ""
    with server(404) as (url, _):
        assert ping(url) == "the ping at http://127.0.0.1/*** failed: it answered 404"

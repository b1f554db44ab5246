"""The message about a night, in the formats that chat services and scripts accept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

_MOST_SENTENCES = 12
_LONGEST, _LONGEST_SENTENCE = 2800, 500
"""Most characters in a block's text, escaped (Slack's limit is 3000), and in a sentence."""


@dataclass(frozen=True)
class Message:
    """How a night went, or, with an empty ``night``, that none arrived.

    ``links`` maps titles to its pages.
    """

    suite: str
    night: str
    verdict: str
    sentences: list[str]
    ongoing: bool = False
    report: str = ""
    links: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The night in one line."""
        word = f"ongoing {self.verdict}" if self.ongoing else self.verdict
        return f"{' '.join(filter(None, (self.suite, self.night)))}: {word}"


def plain(message: Message) -> dict[str, Any]:
    """The message as plain JSON, for scripts."""
    content: dict[str, Any] = {
        "suite": message.suite,
        "night": message.night,
        "verdict": message.verdict,
        "ongoing": message.ongoing,
        "sentences": message.sentences,
    }
    content |= {"report": message.report} if message.report else {}
    return content | ({"links": dict(message.links)} if message.links else {})


def slack(message: Message) -> dict[str, Any]:
    """For Slack's incoming webhooks: blocks, and a fallback text."""
    links = " · ".join(f"<{url}|{_mrkdwn(name)}>" for name, url in message.links.items())
    where = links or _mrkdwn(message.report)
    texts = ["\n".join(f"• {each}" for each in _some(message, _mrkdwn)), *([where] * bool(where))]
    sections = [{"type": "section", "text": {"type": "mrkdwn", "text": text}} for text in texts]
    header = {"type": "header", "text": {"type": "plain_text", "text": message.title[:150]}}
    return {"text": _mrkdwn(message.title), "blocks": [header, *sections]}


def teams(message: Message) -> dict[str, Any]:
    """For webhooks of Teams workflows: an adaptive card."""
    body = [{"type": "TextBlock", "text": message.title, "size": "Large", "weight": "Bolder"}]
    body += [{"type": "TextBlock", "text": each} for each in _some(message)]
    if message.report and not message.links:
        body.append({"type": "TextBlock", "text": message.report})
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [{**block, "wrap": True} for block in body],
        "actions": [
            {"type": "Action.OpenUrl", "title": name, "url": url}
            for name, url in message.links.items()
        ],
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return {"type": "message", "attachments": [attachment]}


FORMS: dict[str, Callable[[Message], dict[str, Any]]] = {
    "json": plain,
    "slack": slack,
    "teams": teams,
}
"""By the prefix of the webhook's address."""


def _some(message: Message, escaped: Callable[[str], str] = str) -> list[str]:
    """As many sentences, escaped, as fit into a chat message: whole, unless one is very long."""
    some: list[str] = []
    room = _LONGEST
    for sentence in message.sentences[:_MOST_SENTENCES]:
        cut = len(sentence) > _LONGEST_SENTENCE
        text = escaped(f"{sentence[: _LONGEST_SENTENCE - 1]}…" if cut else sentence)
        room -= len(text)
        if room < 0:
            break
        some.append(text)
    left = len(message.sentences) - len(some)
    return [*some, *([f"… and {left} more."] if left else [])]


def _mrkdwn(text: str) -> str:
    """Escape Slack's three special characters, which could notify everyone (``<!channel>``)."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

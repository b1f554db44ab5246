"""A night for people: page, Markdown, charts, webhook."""

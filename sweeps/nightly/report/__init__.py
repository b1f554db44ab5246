"""A night's report: page, Markdown, charts, webhook."""

"""The report of a sweep: tables, figures and one HTML page."""

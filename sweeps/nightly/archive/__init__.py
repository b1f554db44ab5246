"""The nights on disk: their directory, results, baseline and history."""

"""Every night the same suite: run, compared with the accepted baseline, judged, reported."""

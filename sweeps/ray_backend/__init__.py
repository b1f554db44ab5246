"""Everything that imports Ray: where trials run, and how they get there."""

"""``make bench``: every benchmark in turn, each a table of ratios measured in one run."""

from __future__ import annotations

import sys

from tests.benchmarks import bench_bilevel, bench_engine, bench_metrics

if __name__ == "__main__":
    sys.exit(max([bench_metrics.main(), bench_bilevel.main(), bench_engine.main()]))

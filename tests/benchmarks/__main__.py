"""``make bench``: every benchmark in turn, each a table of ratios measured in one run."""

from __future__ import annotations

import sys

from tests.benchmarks import (
    bench_asking,
    bench_backbones,
    bench_bilevel,
    bench_cohorts,
    bench_engine,
    bench_growth,
    bench_images,
    bench_metrics,
    bench_start,
)

if __name__ == "__main__":
    benches = (
        *(bench_start, bench_metrics, bench_bilevel, bench_cohorts, bench_engine),
        *(bench_growth, bench_backbones, bench_images, bench_asking),
    )
    sys.exit(max([bench.main() for bench in benches]))

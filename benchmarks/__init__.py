"""The benchmarks, one per bench_*.py, and `runner`, which runs them and the paper's experiments."""

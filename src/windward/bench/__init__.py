"""Benchmarks: ratios against a peer or the machine's limit, measured in the same run."""

"""Benchmarks: load with stated definitions, a gate of validity, comparison with intervals."""

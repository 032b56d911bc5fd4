"""Benchmarks: ours beside the limit (and peers) in one run, reported as ratios. ``python -m bench NAME``."""

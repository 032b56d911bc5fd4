"""Deterministic simulation: the real engine on a virtual clock, a seed decides all that is chance."""

"""Implementations of the ports; none knows another."""

"""Experiments on real parts: processes are killed and frozen, wires are cut, and the ledgers are read."""

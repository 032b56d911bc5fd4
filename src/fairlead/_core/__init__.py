"""Building blocks that need the standard library only: time, ids, secrets and fault points."""

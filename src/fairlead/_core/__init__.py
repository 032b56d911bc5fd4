"""Building blocks of the standard library only: time, ids, secrets, and places where tests interfere."""

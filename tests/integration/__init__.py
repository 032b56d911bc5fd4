"""fairlead against servers that somebody else wrote."""

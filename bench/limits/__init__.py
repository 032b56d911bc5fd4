"""The least code that does the work: the limits that rows are compared with."""

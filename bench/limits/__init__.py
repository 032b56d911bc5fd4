"""What PostgreSQL gives to the least code that could do the work: the limits that rows are measured by."""

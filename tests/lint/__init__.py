"""Our own lint: rules of the house that no tool off the shelf checks. Each shows that it bites."""

"""One call to a provider's API that does the right thing (C2)."""

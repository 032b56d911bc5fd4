"""One behavioural suite per port, run on every implementation (STYLE A4)."""

"""Names of settings in the environment."""

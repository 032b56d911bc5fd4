"""Provider profiles: one TOML file for each provider, the models that check them, and settings of connections."""

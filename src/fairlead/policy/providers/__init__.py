"""Vendor profiles as data: one TOML file each, read by fairlead.policy.providers.profile_load (T1)."""

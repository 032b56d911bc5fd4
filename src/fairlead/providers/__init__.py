"""Vendor profiles as data: one TOML file each, read by fairlead.policy.profile_load (T1)."""

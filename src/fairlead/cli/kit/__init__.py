"""Shared by all commands: options, changes, output, names, exit codes."""

"""What the groups of commands share: options, output, names, exit codes."""

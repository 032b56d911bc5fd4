"""Pure decisions: values in, values out. Time and chance are arguments (floor 1)."""

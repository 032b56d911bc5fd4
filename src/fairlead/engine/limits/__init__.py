"""The rooms of the gate: waiting for admission, keeping what was admitted, and doing without Redis."""

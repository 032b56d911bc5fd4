"""What the machine itself gives: time, chance, ids, memory, and proof that a process is dead."""

"""What the fake servers and the clocks of tests share."""

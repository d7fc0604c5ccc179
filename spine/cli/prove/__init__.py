"""Commands that prove and compare (floor 15): exit status 0 when it holds or is alike, 1 when not."""

"""Scenarios (floor 14): files that say a session and what must come of it, read, played, checked and written."""

"""Commands to begin with (floor 15): the demonstration, and a project of one's own."""

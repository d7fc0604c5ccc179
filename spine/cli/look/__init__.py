"""Commands that show what a store holds (floor 15): nothing is imported that could act."""

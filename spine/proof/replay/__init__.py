"""A session again, from its log (floor 13): the world as it was recorded, around the real loop, hooks and sections."""

"""Commands that tell what is set up (floor 15): models, settings, and how a captured answer is read."""

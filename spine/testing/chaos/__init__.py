"""A server that misbehaves, and everything that it can do (floor 14); the kit in `spine.testing.adapters` tries it."""

"""Stores held to their promises (floor 14): the contract suite, in parts, and what its tests are made of."""

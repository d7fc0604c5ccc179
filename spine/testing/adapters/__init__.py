"""Adapters held to their promises (floor 14): the contract of every adapter, the conformance kit for protocols."""

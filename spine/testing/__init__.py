"""The testing kit: fakes that pass the real contracts, and the contracts, for anyone's plugins (floor 14)."""

"""The commands of `spine scenario` (floor 15): files that are played, written and made small."""

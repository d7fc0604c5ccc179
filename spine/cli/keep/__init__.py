"""Commands for what lies in a store (floor 15): the storage is checked and moved, data are erased."""

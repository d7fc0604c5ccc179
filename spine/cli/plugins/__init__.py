"""The commands of `spine plugins` and `spine tools` (floor 15): what is there, what is wrong, a new one."""

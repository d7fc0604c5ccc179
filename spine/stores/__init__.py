"""The stores that come with the runtime, opened by URL through its table: `memory:` and `sqlite:path` (side room)."""

"""Measurements of the runtime, each against a floor that is measured in the same run; `python -m benchmarks`.

Nothing of the product imports this package, and nothing here reaches into the loop: every figure is taken from the
outside, with the whole job done (events, numbers, hashes, projections, snapshot, four hooks, validation).

Reading order: `targets` (what is demanded), `workload` (what one step is), `floors` (what it is compared with), then
one file for each idea: `steps`, `durable`, `stored`, `decoding`, `crowd`, `startup`, `parts`.
"""

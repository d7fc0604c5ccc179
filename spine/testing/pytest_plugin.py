"""The pytest plugin: scenarios as tests, and the `spine_*` fixtures (floor 15, apart from everything else).

The only file that knows pytest and syrupy.
"""

"""A conversation with a real model on this machine, through the command line; `python -m scenarios.live`.

Nothing is scripted and nothing leaves the machine: a small model answers on a loopback port, and what is shown is
that real bytes go through adapter, log, verification and transcript.
"""

"""Lets the tests of every plugin import `wire_trials`, which lies beside this file."""

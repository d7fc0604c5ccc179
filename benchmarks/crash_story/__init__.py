"""The same story on three runtimes: a payment has gone through, the process is killed, another one goes on.

Each `story_*.py` is a program of its own, for an environment of its own: `python story_ours.py FOLDER` pays into
FOLDER/payments and is killed in the tool; run again it opens the session, goes on, and prints what the model is told.
The model is the same everywhere: shown no result of `pay` it calls `pay`, shown one it says so.
"""

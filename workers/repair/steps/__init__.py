"""Each step looks, and then makes at most one changing call a pass; what an earlier pass did is read back from AWS.

A step is a function `(run) -> Result`. It may be run any number of times, by any worker, after any kill.
"""

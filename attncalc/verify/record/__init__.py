"""`attncalc verify --record`: everything that a device can do in a given time, as plain data for a
page and its JSON.

steps.py      what is run, the most informative first
estimate.py   how long a step takes
recorder.py   runs the steps that fit in the time, and describes them as plain data
machine.py    the facts of the machine
"""

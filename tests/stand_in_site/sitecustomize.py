"""Starts the stand-in for CUDA in each process whose environment has a box: see
tests/cuda_stand_in.py.
"""

import os

if os.environ.get("CUDA_STAND_IN"):
    import json

    from cuda_stand_in import box_from, stand_in

    running = stand_in(box_from(json.loads(os.environ["CUDA_STAND_IN"])))
    running.__enter__()

"""What a model costs: cache, parameters, FLOPs, activations; each function takes a ModelSpec and
returns Quantities.
"""

"""What a model costs: cache, parameters, FLOPs, activations; a ModelSpec and a Workload give Quantities."""

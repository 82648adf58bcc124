"""How checkpoints store quantized matrices, by the quantization_config of a config.json."""

"""`presets`: the built-in models."""

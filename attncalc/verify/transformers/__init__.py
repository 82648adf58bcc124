"""The comparison with the model classes of the transformers library."""

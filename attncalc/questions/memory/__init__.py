"""`memory`: activation memory of attention."""

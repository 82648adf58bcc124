"""`fit`: how much GPU memory a model needs, and what fits."""

"""vLLM. `engine.py` has the class that answers for it."""

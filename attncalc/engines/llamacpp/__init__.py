"""llama.cpp and its fork ik_llama.cpp. `engine.py` has the class that answers for them."""

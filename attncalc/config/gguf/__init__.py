"""GGUF files: their headers, read by ranges of bytes, become a model with its weights.

files.py finds the files, header.py reads the format, model.py and layers.py make a model of it;
architectures.py is what llama.cpp decides by an architecture's name.
"""

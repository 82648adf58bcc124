"""Damaged inputs of every kind, and what must hold for each answer. tools/fuzz.py runs them for any
time.
"""

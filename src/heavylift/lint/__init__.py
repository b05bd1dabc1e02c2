"""Reads commands that people paste, and says what is wrong with them. Nothing is ever executed."""

"""Recorded traffic: what came when and how large, for whoever replays or simulates it."""

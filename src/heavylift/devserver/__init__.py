"""Scripted engines that play a scenario, for tests and for trying things."""

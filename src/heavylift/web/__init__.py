"""The pages: a planner and a live view, rendered here and served on loopback."""

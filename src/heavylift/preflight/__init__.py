"""Preflight: what a machine is like (snapshot), and whether that will do (checks)."""

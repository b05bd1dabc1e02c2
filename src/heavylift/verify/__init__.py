"""Verification: whether a served model answers as it should, check by check, as rates."""

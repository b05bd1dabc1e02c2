"""Checks: pure judgements over a snapshot, the facts and, where there is one, a plan."""

"""Durable batches: nothing lost, nothing recorded twice."""

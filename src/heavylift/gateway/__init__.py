"""The front door: keys, quotas that hold, routing, limits, usage and audit."""

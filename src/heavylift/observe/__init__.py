"""Watching a running service: series, drift from the plan, dashboards and alerts."""

"""Probes: what a check asks and how its answers are judged. Pure: a probe is a generator that
yields requests and is sent their outcomes; another module does the sending.
"""

"""A fleet in simulated time: replicas, their steps and memory, routers, failures, outcomes.

Pure: facts, requests and chance are arguments. A run is one speed; the bands of an answer are runs
of the same requests at the slow end, the middle and the fast end of the forecast's interval.
"""

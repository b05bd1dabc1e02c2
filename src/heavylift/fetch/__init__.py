"""Fetching a model from a hub: room and licence first, the transfer, then every byte checked."""

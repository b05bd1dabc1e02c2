"""Catalogues of what people read."""

"""Recipes with their facts loaded: a model, a rack and an engine become a launch, or a refusal.

`recipe` itself is pure and is handed everything; here plans are made, engines are weighed, and
what was published or reported broken is looked up.
"""

from heavylift.reciping.recipes import Reciping
from heavylift.reciping.wish import EmbeddedPlace, RecipeWish

__all__ = ["EmbeddedPlace", "RecipeWish", "Reciping"]

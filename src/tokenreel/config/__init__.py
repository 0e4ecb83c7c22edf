"""Types of recipes, and the JSON Schemas that editors check them with."""

from tokenreel.config.recipe import Recipe, SourceField, load_recipe, recipe_schema

__all__ = ["Recipe", "SourceField", "load_recipe", "recipe_schema"]

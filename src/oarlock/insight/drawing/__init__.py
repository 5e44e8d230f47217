"""Drawings as SVG, by string building: pages and reports share them. Colours are classes of the style sheet."""

"""The site: what administrators set, what the overview counts, what `oarlock check` reads."""

"""Text → model: requests (`-l`), conditions (`-p`, `--sql`), directives (`#OAR`), durations. Pure."""

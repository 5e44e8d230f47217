"""What is measured: one module a source. Parsing is apart from reading; what cannot be read is absent, never zero."""

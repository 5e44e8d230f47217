"""Python admission rules: trusted files of the administrator, in processes of their own."""

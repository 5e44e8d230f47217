"""The commands of the manual, one module each, and `oarlock`, whose subcommands have a folder of their own."""

"""The commands: OAR's and Slurm's, a module each, and `oarlock`, whose subcommands have a folder of their own."""

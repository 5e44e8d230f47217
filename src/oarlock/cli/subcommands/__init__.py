"""The subcommands of `oarlock`."""

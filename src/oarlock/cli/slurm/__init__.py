"""Slurm's commands for those who come from there: options and `#SBATCH` lines, translated into our submissions."""

COMMANDS = ("sacct", "salloc", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun")

"""What happened, as data: decided by a command, applied here and nowhere else."""

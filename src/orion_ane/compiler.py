"""graph → passes → emit → Program, and nothing else."""

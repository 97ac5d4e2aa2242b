"""Where jobs run: on this host, in Slurm, or in Ray, behind one small protocol."""

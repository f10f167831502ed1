"""Members of MPI jobs: Open MPI starts its processes through them in place of ssh."""

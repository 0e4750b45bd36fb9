"""What the repository offers to CI systems, run as they run it."""

"""The apps of the simulated phone."""

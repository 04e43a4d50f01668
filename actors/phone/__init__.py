"""The simulated phone: adbd, a shell, a view tree, apps and faults."""

"""Command lines; flags, environment variables and the clock are read here."""

"""The actors: one process per phone, from the device to the finished episode."""

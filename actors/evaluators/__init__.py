"""Judges: who says that a task is done."""

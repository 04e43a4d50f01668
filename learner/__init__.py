"""The learner: ingest, replay, A-RIDE updates, checkpoints and published parameters."""

"""What the learner and the actors share: data, wire format, tasks and models."""

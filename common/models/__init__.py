"""The policy network, its text and its image features."""

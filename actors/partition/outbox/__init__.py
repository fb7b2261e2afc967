"""What the acks of a partition publish: in its delivery journal, until the forwarder has published it."""

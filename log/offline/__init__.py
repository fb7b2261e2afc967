"""Reading beside the writer, verifying, repairing."""

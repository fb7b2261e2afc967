"""The partition: its commands, its pure parts and the actor around them."""

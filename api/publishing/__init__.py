"""Publishing: what a publish is made of, which partition it goes to, and how it gets there."""

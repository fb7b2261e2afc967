"""The real implementations of the seams: the only code that touches the operating system."""

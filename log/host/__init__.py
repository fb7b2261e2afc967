"""The real implementations of the seams: below the programming interface, only this touches the operating system."""

"""Web traffic: read from log files, measured into a profile of numbers, and made from one. Sans I/O."""

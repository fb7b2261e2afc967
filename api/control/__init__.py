"""The control socket: how another process looks at, and steers, a running runtime."""

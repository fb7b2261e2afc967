"""The actors: their kernel, and the rooms of the broker that stand on it and on supervision."""

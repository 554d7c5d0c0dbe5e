"""Generates load and takes the times: the instrument. It touches the world, like `transport` and `store`."""

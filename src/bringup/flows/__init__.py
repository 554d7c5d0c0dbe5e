"""One file per use case: joins what is pure with what touches the world; reads as the list of steps."""

"""One file per use case: joins the pure packages with those that touch the world; reads as the list of steps."""

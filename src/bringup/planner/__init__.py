"""Memory accounting: model, layout and engine rules in, bytes out. Pure; every figure carries its formula."""

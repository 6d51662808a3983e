"""The stdio bridge: the Language Server Protocol on one side, the daemon on the other."""

"""Work in processes of its own, so that a crash or a hang ends no other."""

"""What every stage works on: FX graphs with roles, the loop IR, and facts about tensors."""

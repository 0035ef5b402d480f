"""What stands around the graphs of a compile: who builds them, how halves fit together, and the call that runs them."""

"""CUDA graphs: recordings of what a graph launches, and their replay."""

"""The same work done on the GPU by others: PyTorch, torch.compile, Triton and CuPy, as a good user would write it."""

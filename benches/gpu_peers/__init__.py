"""Peers on the GPU that do the work of robocache: PyTorch, torch.compile, Triton and CuPy, as a good user would write it."""

"""What a training step costs on each GPU: weights, gradients, optimizer states, activations, and
its FLOPs.
"""

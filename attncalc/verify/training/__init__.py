"""What a training step holds, measured: tensors saved for the backward pass, gradients, optimizer
states, the peak.
"""

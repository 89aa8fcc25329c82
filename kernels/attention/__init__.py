"""Attention for Hopper: softmax(Q K^T) V, forward and backward, of `cutepy.device`'s blocks."""

"""Attention for Hopper: softmax(Q K^T) V, forward, of `cutepy.device`'s blocks."""

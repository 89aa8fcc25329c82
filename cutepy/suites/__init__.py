"""What `cutepy bench` measures, one module a suite; the protocol that they share is `cutepy.benchmark`."""

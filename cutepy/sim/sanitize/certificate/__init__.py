"""The certificate: whether the one schedule that ran speaks for all. docs/certificate_reference.md has the argument."""

"""The certificate: whether the one schedule that ran speaks for all. docs/certificate.md has the argument."""

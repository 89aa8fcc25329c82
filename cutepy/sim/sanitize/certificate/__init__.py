"""The certificate: one schedule's trace speaks for all schedules. docs/certificate_reference.md has the argument."""

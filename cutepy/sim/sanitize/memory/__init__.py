"""Who touched which bytes, and whether those who touch them next come after."""

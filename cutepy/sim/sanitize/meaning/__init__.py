"""Whether bytes mean to who reads them what they meant to who wrote them."""

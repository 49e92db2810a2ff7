"""HTTP cache: the policy of RFC 9111, and the storage of responses."""

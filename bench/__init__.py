"""The promises in numbers, each measured beside a peer or this machine's own limit in the same run."""

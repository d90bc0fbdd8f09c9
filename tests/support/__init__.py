"""What tests share: requirement marks, real parts, and a reader of this repository."""

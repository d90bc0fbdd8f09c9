"""Operations on files by descriptor: open beneath a directory, lock, tail, compare, and set aside."""

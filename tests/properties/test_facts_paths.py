"""Whatever tree and whatever words: our path is the kernel's path, or there is none."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis import given, settings
from hypothesis import strategies as st

from curtainwall.facts import PathRoots, Unclear, canonical_path
from curtainwall.model import ancestors, is_beneath

# A mount that is never met makes every path be walked.
ELSEWHERE = (("/nowhere-inside", "/nowhere-outside"),)

names = st.sampled_from(["a", "b", "c", "d"])
steps = st.one_of(names, names, st.sampled_from(["..", ".", ""]))
words = st.builds(
    lambda start, parts, end: start + "/".join(parts) + end,
    st.sampled_from(["", "", "ROOT/"]),
    st.lists(steps, min_size=1, max_size=6),
    st.sampled_from(["", "", "", "/"]),
)
entries = st.one_of(
    st.just(("directory", "")), st.just(("directory", "")), st.just(("file", "")), st.tuples(st.just("link"), words.filter(bool))
)
trees = st.lists(st.tuples(st.lists(names, min_size=1, max_size=3).map("/".join), entries), max_size=14)


@contextmanager
def planted(tree: list[tuple[str, tuple[str, str]]]) -> Iterator[str]:
    """Give a directory with as much of the tree as can stand in it."""
    with tempfile.TemporaryDirectory() as made:
        root = os.path.realpath(made)
        for place, (kind, target) in tree:
            # A link may lead out of the directory, and nothing is put there.
            if not is_beneath(os.path.realpath(os.path.dirname(f"{root}/{place}")), root):
                continue
            try:
                if kind == "directory":
                    os.makedirs(f"{root}/{place}")
                elif kind == "file":
                    os.close(os.open(f"{root}/{place}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                else:
                    os.symlink(target.replace("ROOT", root), f"{root}/{place}")
            except OSError:
                continue
        yield root


def kernel(path: str) -> str | int:
    """Return where the kernel arrives, or why it does not."""
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as fault:
        return fault.errno or -1
    try:
        return os.readlink(f"/proc/self/fd/{opened}")
    finally:
        os.close(opened)


def meaning(text: object, scene: PathRoots) -> str | None:
    try:
        return canonical_path(text, scene)
    except Unclear:
        return None


@settings(max_examples=400, deadline=None)
@given(trees, st.lists(words.filter(lambda text: bool(text.strip())), min_size=1, max_size=6))
def test_our_path_is_where_the_kernel_arrives(tree: list[tuple[str, tuple[str, str]]], texts: list[str]) -> None:
    with planted(tree) as root:
        direct, walked = PathRoots(root, root), PathRoots(root, root, mounts=ELSEWHERE)
        for text in (text.replace("ROOT", root) for text in texts):
            ours, truth = meaning(text, direct), kernel(os.path.join(root, text))
            assert meaning(text, walked) == ours
            if isinstance(truth, str):
                assert ours == truth
            elif truth != errno.ENOENT:
                # Whether something outside is a directory is told to nobody.
                assert ours is None or not is_beneath(ours, root), (text, errno.errorcode[truth])
            elif ours is not None:
                assert ours == os.path.realpath(os.path.join(root, text))
            if ours is not None:
                assert meaning(ours, direct) == ours


anything = st.one_of(
    st.text(),
    st.text(alphabet=st.sampled_from(list("/.~ab \0\\\n\udcff é"))),
    st.text(alphabet=st.characters()).map(lambda text: f"/{text}"),
    st.binary(),
    st.none(),
    st.integers(),
    st.floats(),
    st.lists(st.text()),
    st.dictionaries(st.text(), st.text()),
    st.sampled_from(["/proc/self/fd/0", "/dev/fd", "a" * 5000, "/" * 4095, "../" * 1500, "~", "~\0", "/proc/1/root"]),
)
containers = st.sampled_from([(), ELSEWHERE, (("/workspace", "/usr"),), (("/a/b", "/usr/lib"), ("/a", "/usr"))])


@settings(deadline=None)
@given(anything, containers)
def test_any_object_is_a_canonical_path_or_unclear(text: object, mounts: tuple[tuple[str, str], ...]) -> None:
    ours = meaning(text, PathRoots("/usr", "/var", mounts=mounts))
    if ours is not None:
        assert ours == os.path.normpath(ours)
        assert ours.startswith("/")
        assert ours.encode().decode() == ours
        assert "\0" not in ours


canonical = st.lists(st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1), max_size=5).map(
    lambda parts: "/" + "/".join(parts)
)


@given(canonical, canonical)
def test_beneath_means_among_the_ancestors(path: str, root: str) -> None:
    assert is_beneath(path, root) is (root in (*ancestors(path), path))
    assert all(is_beneath(path, above) for above in ancestors(path))
    assert len(ancestors(path)) == (0 if path == "/" else path.count("/"))


@given(st.lists(names, max_size=4).map("/".join))
def test_a_mounted_path_is_the_same_path_of_this_machine(tail: str) -> None:
    scene = PathRoots("/nowhere-outside", "/h", mounts=ELSEWHERE)
    inside = f"/nowhere-inside/{tail}".rstrip("/")
    outside = canonical_path(inside, scene)
    assert outside == f"/nowhere-outside/{tail}".rstrip("/")

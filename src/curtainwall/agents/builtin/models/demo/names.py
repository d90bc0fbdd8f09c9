"""Which file, place, text or address a few words name; none where they could as well mean something else."""

import re
from dataclasses import dataclass
from typing import Final

from curtainwall.agents.builtin.models.demo.clauses import ClauseWords

_NOUNS: Final = r"file|document|directory|folder|dir|path"
_PHRASE = re.compile(
    rf"(?:(?P<article>the|this|that|my|our|a|an|its|another) )?(?:(?:new|empty|text|existing|whole|entire|local|plain) )*"
    rf"(?:(?P<noun>{_NOUNS})s? )?(?:(?:called|named|at) )?(?P<word>[^\s,;]+)(?: (?P<after>{_NOUNS}))?",
    re.IGNORECASE,
)
_HERE = re.compile(
    r"here|there|\.|(?:all|all of|any of)? ?(?:the |my |our )?files|every file|everything|everywhere|"
    r"(?:(?:the|this|my|our|your) )?(?:(?:current|working|whole|entire|present|root) )*"
    r"(?:directory|folder|dir|workspace|project|repo|repository|root|codebase)(?: (?:directory|folder|dir))?",
    re.IGNORECASE,
)
_IT = re.compile(r"it|that|this|this file|that file|the file|the same file|them", re.IGNORECASE)
_BARE = re.compile(r"[\w./~@+\-#%=:()\[\]{}*?!$&]+")
_LIKELY = re.compile(r".*[./~*].*|README|LICENSE|LICENCE|Makefile|Dockerfile|CHANGELOG|NOTICE|AUTHORS", re.DOTALL)
_DOMAIN = re.compile(r"(?:[a-z0-9-]+\.)+(?:com|org|net|io|dev|edu|gov|info|app|ai|co|eu|de|uk|ch|at|fr)(?::\d+)?(?:/\S*)?", re.IGNORECASE)
_TRAILING: Final = ".,:;!?"

# Words that people say where a name could stand, and that name nothing.
_NO_NAMES: Final = frozenset(
    """
    an the all any anything some something everything nothing none each every both either it its them they this that these those
    file files folder folders directory directories document documents line lines word words text texts content contents stuff things
    me you us him her my your our his their mine yours here there now then again what which who whom whose when where why how
    if unless except but or and not no yes ok only just about with without from into onto over under of in on at to by as for
    is are was were be been being do does did has have had can could will would shall should may might must please
    story joke poem song news weather time date day today tomorrow yesterday help more less nobody someone
    """.split()
)


# Words that begin the description of a text instead of the text itself.
_DESCRIBING: Final = frozenset("a an the some my your our its all any it them what how why something".split())


@dataclass(frozen=True, slots=True)
class NamedThing:
    """A file or directory as the human named it; `directory` where that was said."""

    path: str
    directory: bool = False
    likely: bool = True


@dataclass(frozen=True, slots=True)
class NameReader:
    """Reads names in one instruction; `it` is the file that was spoken of last."""

    words: ClauseWords
    it: str = ""

    def named(self, text: str) -> NamedThing | None:
        """Return the file or directory that words name."""
        text = text.strip()
        if _HERE.fullmatch(text):
            return NamedThing(".", directory=True)
        if self.it and _IT.fullmatch(text):
            return NamedThing(self.it)
        found = _PHRASE.fullmatch(text)
        if found is None:
            return None
        noun = (found["noun"] or found["after"] or "").lower()
        return self._of_word(found["word"], noun, has_article=bool(found["article"]))

    def _of_word(self, word: str, noun: str, *, has_article: bool) -> NamedThing | None:
        directory = noun in {"directory", "folder", "dir"}
        span = self.words.span(word) or self.words.span(word.rstrip(_TRAILING))
        if span is not None:
            sound = span.kind in {"text", "code"} and span.value.strip() and "\n" not in span.value
            return NamedThing(span.value, directory or span.value.endswith("/")) if sound else None
        path = word if word in {".", ".."} or word.endswith("/..") else word.rstrip(_TRAILING).removesuffix("'s")
        if not path or path.lower() in _NO_NAMES or not _BARE.fullmatch(path):
            return None
        likely = bool(_LIKELY.fullmatch(path))
        # “the weather” is no file, “the weather file” and “the weather.txt” are.
        if has_article and not likely and not noun:
            return None
        return NamedThing(path, directory or path.endswith(("/", "..")), likely or bool(noun))

    def path(self, text: str) -> str | None:
        """Return the path that words name, unless it is a pattern for many."""
        found = self.named(text)
        return None if found is None or "*" in found.path else found.path

    def likely_path(self, text: str) -> str | None:
        """Return the path that words name which could well mean something else."""
        found = self.named(text)
        return None if found is None or not found.likely or "*" in found.path else found.path

    def place(self, text: str | None) -> str | None:
        """Return the directory or file that a search is limited to; the current directory without words."""
        return "." if not text else self.path(text)

    def paths(self, text: str) -> list[NamedThing] | None:
        """Return all the files that words list, or none if one of them is no file."""
        found = [self.named(part) for part in re.split(r",\s*(?:and\s+)?|\s+and\s+|\s+&\s+", text.strip()) if part]
        sure = [each for each in found if each is not None and "*" not in each.path]
        return sure if sure and len(sure) == len(found) else None

    def url(self, text: str) -> str | None:
        """Return the address that a word is."""
        span = self.words.span(text.strip().rstrip(_TRAILING))
        bare = span.value if span else text.strip().rstrip(_TRAILING)
        if re.match(r"https?://", bare, re.IGNORECASE) and not re.search(r"\s", bare):
            return bare
        return f"https://{bare}" if _DOMAIN.fullmatch(bare) else None

    def text(self, text: str) -> str | None:
        """Return what is to be written or looked for: what is quoted, or plain words that are no description of something."""
        text = text.strip()
        span = self.words.span(text) or self.words.span(text.rstrip(_TRAILING))
        if span is not None:
            return span.value
        first = text.split(" ")[0].lower()
        described = first in {
            "a",
            "an",
            "the",
            "some",
            "my",
            "your",
            "our",
            "its",
            "all",
            "any",
            "it",
            "them",
            "what",
            "how",
            "why",
            "something",
        }
        return None if not text or described else self.words.source(text)

    def quoted(self, text: str) -> str | None:
        """Return what is quoted, if that is all."""
        span = self.words.span(text.strip())
        return span.value if span and span.kind in {"text", "code"} else None

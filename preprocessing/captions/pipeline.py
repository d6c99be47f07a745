"""The spaCy pipeline that parses captions: the one that ships with the package, or any that is installed."""

import spacy
from spacy.language import Language
from thinc.api import use_ops

from preprocessing.captions.english import SHIPPED
from preprocessing.reading import damage_as

_REQUIRED = ("tagger", "parser", "lemmatizer")


class PipelineError(ValueError):
    """A spaCy pipeline that is not installed, or that cannot parse captions."""


def load_pipeline(name: str | None = None) -> Language:
    """Load a pipeline that tags, lemmatises and parses English captions, by a package's name or a saved one's folder.

    The shipped one, which needs no download, labels dependencies after Universal Dependencies, spaCy's own English
    pipelines after ClearNLP. PipelineError: nothing has this name, or it has no tagger, parser or lemmatizer.
    """
    what = f"no spaCy pipeline {name or str(SHIPPED)!r}: neither an installed package nor a complete folder"
    remedy = f"run `python -m spacy download {name}`, or leave the name out for the shipped pipeline"
    # Thinc's own BLAS falls back to plain C on processors that it does not know: a third of NumPy's speed.
    with damage_as(PipelineError, what, remedy if name else "reinstall the package"), use_ops("numpy", use_blis=False):
        nlp = spacy.load(SHIPPED if name is None else name)
    missing = [component for component in _REQUIRED if component not in nlp.pipe_names]
    if missing:
        raise PipelineError(
            f"the spaCy pipeline {name!r} has no {', '.join(missing)}; it has {', '.join(nlp.pipe_names)}"
        )
    return nlp

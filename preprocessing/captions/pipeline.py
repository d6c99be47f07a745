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

    It must label dependencies after Universal Dependencies, as the shipped one does; spaCy's own English pipelines do
    not. PipelineError: nothing has this name, it has no tagger, parser or lemmatizer, or other labels.
    """
    what = f"no spaCy pipeline {name or str(SHIPPED)!r}: neither an installed package nor a complete folder"
    remedy = "install or correct it, or leave the name out for the shipped pipeline"
    # Thinc's own BLAS falls back to plain C on processors that it does not know: a third of NumPy's speed.
    with damage_as(PipelineError, what, remedy if name else "reinstall the package"), use_ops("numpy", use_blis=False):
        nlp = spacy.load(SHIPPED if name is None else name)
    missing = [component for component in _REQUIRED if component not in nlp.pipe_names]
    if missing:
        raise PipelineError(f"the spaCy pipeline {name!r} has no {', '.join(missing)}, but {', '.join(nlp.pipe_names)}")
    if "obl" not in nlp.get_pipe("parser").labels or nlp.get_pipe("lemmatizer").mode != "rule":
        raise PipelineError(
            f"the spaCy pipeline {name!r} has other labels than those of Universal Dependencies, or no lemmatizer by "
            "rules: train one with preprocessing/captions/english/train.py, or leave the name out for the shipped one"
        )
    return nlp

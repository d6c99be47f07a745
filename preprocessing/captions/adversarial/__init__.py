"""Captions that are wrong in one place: the attacks of UniVSE and of VSE-C."""

from preprocessing.captions.adversarial.files import (
    Adversarial,
    AdversarialError,
    AttackReport,
    read_adversarials,
    write_adversarials,
)
from preprocessing.captions.adversarial.lexicon import VERSION, Lexicon
from preprocessing.captions.adversarial.sentence import TokenizedCaption
from preprocessing.captions.adversarial.univse import univse_attack
from preprocessing.captions.adversarial.vse_c import vse_c_attack

__all__ = [
    "VERSION",
    "Adversarial",
    "AdversarialError",
    "AttackReport",
    "Lexicon",
    "TokenizedCaption",
    "read_adversarials",
    "univse_attack",
    "vse_c_attack",
    "write_adversarials",
]

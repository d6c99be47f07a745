"""Scene graphs beyond subjects and objects: pronouns, places, offsets, and parses that are wrong."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from spacy.tokens import Doc
from spacy.vocab import Vocab

from preprocessing.captions.graph import SceneGraph
from preprocessing.captions.scene_graph import extract_graph
from tests.preprocessing.captions.scene_graph.parses import attributes, listed, objects, parsed, relations

PRONOUNS = {
    "he is not the woman": (
        "a/DT man/NN and/CC a/DT woman/NN in/IN his/PRP$ car/NN",
        "det>2 root>0 cc>5 det>5 conj>2 case>8 nmod:poss>8 nmod>5",
        "woman (in) car, man (have) car",
    ),
    "she is not the fireman": (
        "a/DT fireman/NN with/IN a/DT girl/NN ,/. holding~hold/VBG her/PRP$ doll/NN",
        "det>2 root>0 case>5 det>5 nmod>2 punct>7 acl>2 nmod:poss>9 obj>7",
        "fireman (with) girl, fireman (hold) doll, girl (have) doll",
    ),
    "she is not the king": (
        "a/DT king/NN and/CC a/DT dancer/NN in/IN her/PRP$ car/NN",
        "det>2 root>0 cc>5 det>5 conj>2 case>8 nmod:poss>8 nmod>5",
        "dancer (in) car, dancer (have) car",
    ),
    "she is not the horseman": (
        "a/DT horseman/NN and/CC a/DT dancer/NN in/IN her/PRP$ car/NN",
        "det>2 root>0 cc>5 det>5 conj>2 case>8 nmod:poss>8 nmod>5",
        "dancer (in) car, dancer (have) car",
    ),
    "two of a word without plural": (
        "two/CD sheep/NN with/IN their/PRP$ lamb/NN",
        "nummod>2 root>0 case>5 nmod:poss>5 nmod>2",
        "sheep (with) lamb, sheep (have) lamb",
    ),
    "one is not many": (
        "one/CD dog/NN with/IN its/PRP$ ball/NN",
        "nummod>2 root>0 case>5 nmod:poss>5 nmod>2",
        "dog (with) ball, dog (have) ball",
    ),
    "two men leave open who he is": (
        "a/DT man/NN with/IN a/DT boy/NN in/IN his/PRP$ car/NN",
        "det>2 root>0 case>5 det>5 nmod>2 case>8 nmod:poss>8 nmod>2",
        "man (with) boy, man (in) car",
    ),
    "he is a person rather than a dog": (
        "a/DT dog/NN with/IN a/DT man/NN in/IN his/PRP$ car/NN",
        "det>2 root>0 case>5 det>5 nmod>2 case>8 nmod:poss>8 nmod>5",
        "dog (with) man, man (in) car, man (have) car",
    ),
    "he is a dog rather than grass": (
        "a/DT dog/NN on/IN grass/NN with/IN his/PRP$ ball/NN",
        "det>2 root>0 case>4 nmod>2 case>7 nmod:poss>7 nmod>2",
        "dog (on) grass, dog (with) ball, dog (have) ball",
    ),
    "he is the only word that may be a person": (
        "a/DT lacrosser/NN with/IN his/PRP$ stick/NN",
        "det>2 root>0 case>5 nmod:poss>5 nmod>2",
        "lacrosser (with) stick, lacrosser (have) stick",
    ),
    "it is not the one who acts": (
        "a/DT batter/NN misses~miss/VBZ a/DT ball/NN and/CC a/DT person/NN catches~catch/VBZ it/PRP",
        "det>2 nsubj>3 root>0 det>5 obj>3 cc>9 det>8 nsubj>9 conj>3 obj>9",
        "batter (miss) ball, person (catch) ball",
    ),
    "it may be either of two": (
        "a/DT cup/NN on/IN a/DT plate/NN ,/. a/DT man/NN holds~hold/VBZ it/PRP",
        "det>2 parataxis>9 case>5 det>5 nmod>2 punct>9 det>8 nsubj>9 root>0 obj>9",
        "cup (on) plate",
    ),
    "it may be a baby": (
        "a/DT baby/NN enjoys~enjoy/VBZ its/PRP$ bath/NN",
        "det>2 nsubj>3 root>0 nmod:poss>5 obj>3",
        "baby (enjoy) bath, baby (have) bath",
    ),
    "it is no man": (
        "a/DT man/NN enjoys~enjoy/VBZ its/PRP$ bath/NN",
        "det>2 nsubj>3 root>0 nmod:poss>5 obj>3",
        "man (enjoy) bath",
    ),
    "him is not the one behind him": (
        "a/DT batter/NN runs~run/VBZ ,/. the/DT person/NN behind/IN him/PRP holds~hold/VBZ a/DT ball/NN",
        "det>2 nsubj>3 root>0 punct>9 det>6 nsubj>9 case>8 nmod>6 parataxis>3 det>11 obj>9",
        "person (behind) batter, person (hold) ball",
    ),
    "they may be either of two plurals": (
        "two/CD dogs~dog/NNS on/IN a/DT beach/NN with/IN toys~toy/NNS in/IN their/PRP$ mouths~mouth/NNS",
        "nummod>2 root>0 case>5 det>5 nmod>2 case>7 nmod>2 case>10 nmod:poss>10 nmod>7",
        "dog (on) beach, dog (with) toy, toy (in) mouth",
    ),
    "they are the only plural one": (
        "two/CD dogs~dog/NNS on/IN a/DT beach/NN near/IN their/PRP$ toys~toy/NNS",
        "nummod>2 root>0 case>5 det>5 nmod>2 case>8 nmod:poss>8 nmod>2",
        "dog (on) beach, dog (near) toy, dog (have) toy",
    ),
    "they are two that are named together": (
        "a/DT man/NN and/CC a/DT woman/NN hold/VBP their/PRP$ hats~hat/NNS",
        "det>2 nsubj>6 cc>5 det>5 conj>2 root>0 nmod:poss>8 obj>6",
        "man (hold) hat, woman (hold) hat, man (have) hat, woman (have) hat",
    ),
    "they are one person": (
        "a/DT person/NN on/IN a/DT bench/NN with/IN their/PRP$ dog/NN",
        "det>2 root>0 case>5 det>5 nmod>2 case>8 nmod:poss>8 nmod>2",
        "person (on) bench, person (with) dog, person (have) dog",
    ),
    "they are a group": (
        "a/DT crowd/NN of/IN fans~fan/NN in/IN their/PRP$ seats~seat/NNS",
        "det>2 root>0 case>4 nmod>2 case>7 nmod:poss>7 nmod>2",
        "fan (in) seat, fan (have) seat",
    ),
    "a pronoun as subject": (
        "a/DT boy/NN runs~run/VBZ while/IN=SCONJ he/PRP holds~hold/VBZ a/DT kite/NN",
        "det>2 nsubj>3 root>0 mark>6 nsubj>6 advcl>3 det>8 obj>6",
        "boy (hold) kite",
    ),
    "oneself": (
        "a/DT cat/NN looks~look/VBZ at/IN itself/PRP in/IN a/DT mirror/NN",
        "det>2 nsubj>3 root>0 case>5 obl>3 case>8 det>8 obl>3",
        "cat (look in) mirror",
    ),
    "not beyond the sentence": (
        "a/DT dog/NN sits~sit/VBZ ./. his/PRP$ ball/NN rolls~roll/VBZ",
        "det>2 nsubj>3 root>0 punct>3 nmod:poss>6 nsubj>7 root>0",
        "",
    ),
    "others are nobody here": (
        "a/DT dog/NN looks~look/VBZ at/IN me/PRP",
        "det>2 nsubj>3 root>0 case>5 obl>3",
        "",
    ),
}


@pytest.mark.parametrize("name", PRONOUNS)
def test_pronouns(name: str) -> None:
    words, arcs, expected = PRONOUNS[name]
    assert relations(extract_graph(parsed(words, arcs))) == listed(expected)


ABSOLUTES = {
    "of a verb": (
        "a/DT man/NN sits~sit/VBZ with/IN=SCONJ trees~tree/NNS in/IN the/DT background/NN",
        "det>2 nsubj>3 root>0 mark>8 nsubj>8 case>8 det>8 advcl>3",
        "man (with) tree, tree (in) background",
    ),
    "of a noun": (
        "a/DT pot/NN with/IN=SCONJ a/DT hole/NN in/IN the/DT bottom/NN",
        "det>2 root>0 mark>8 det>5 nsubj>8 case>8 det>8 acl>2",
        "pot (with) hole, hole (in) bottom",
    ),
    "of a noun that is said of another": (
        "the/DT man/NN is~be/VBZ=AUX a/DT pianist/NN with/IN=SCONJ his/PRP$ legs~leg/NNS crossed~cross/VBN",
        "det>2 nsubj>5 cop>5 det>5 root>0 mark>9 nmod:poss>8 nsubj>9 advcl>5",
        "man (be) pianist, man (with) leg",
    ),
    "of a verb, with a participle": (
        "a/DT man/NN sits~sit/VBZ with/IN=SCONJ his/PRP$ legs~leg/NNS crossed~cross/VBN",
        "det>2 nsubj>3 root>0 mark>7 nmod:poss>6 nsubj>7 advcl>3",
        "man (with) leg, man (have) leg",
    ),
}


@pytest.mark.parametrize("name", ABSOLUTES)
def test_clauses_with_with(name: str) -> None:
    words, arcs, expected = ABSOLUTES[name]
    assert relations(extract_graph(parsed(words, arcs))) == listed(expected)


@pytest.mark.parametrize(
    ("arcs", "expected"),
    [
        ("det>2 root>0 nsubj>4 acl>2 punct>4", "dog (chase) ball"),  # without subtypes any clause may be relative
        ("det>2 root>0 nsubj>4 acl>2 obl:unmarked>4", ""),
        ("det>2 root>0 nsubj>4 acl:relcl>2 mark>4", ""),
    ],
)
def test_a_clause_is_relative_if_it_may_be(arcs: str, expected: str) -> None:
    words = "the/DT ball/NN dogs~dog/NNS chase/VBP ./."
    assert relations(extract_graph(parsed(words, arcs))) == listed(expected)


def test_a_noun_in_a_case_has_no_preposition() -> None:
    # "человек рубит топором", as in languages that inflect instead of using prepositions
    graph = extract_graph(parsed("человек/NN рубит~рубить/VBZ топором~топор/NN", "nsubj>2 root>0 obl>2"))
    assert relations(graph) == listed("человек (рубить) топор")


def test_features_serve_where_there_are_no_english_tags() -> None:
    doc = Doc(
        Vocab(),
        words=["ein", "Mann", ",", "der", "lächelnd", "seinen", "Hund", "hält"],
        lemmas=["ein", "Mann", ",", "der", "lächeln", "sein", "Hund", "halten"],
        pos=["DET", "NOUN", "PUNCT", "PRON", "VERB", "DET", "NOUN", "VERB"],
        morphs=["", "Number=Sing", "", "PronType=Rel", "VerbForm=Part", "Poss=Yes", "Number=Sing", "VerbForm=Fin"],
        heads=[1, 1, 7, 7, 1, 6, 7, 1],
        deps=["det", "root", "punct", "nsubj", "amod", "det:poss", "obj", "acl"],
    )
    graph = extract_graph(doc)
    assert relations(graph) == listed("mann (halten) hund")
    assert attributes(graph) == listed("lächelnd mann")


def test_words_and_lemmas() -> None:
    words = "Two/CD Smaller~small/JJ Dogs~dog/NNS Standing~stand/VBG in/IN Front/NN of/IN Parked~park/VBN Cars~car/NNS"
    graph = extract_graph(parsed(words, "nummod>3 amod>3 root>0 acl>3 case>6 obl>4 case>9 amod>9 nmod>6"))
    dogs, cars = graph.objects
    assert (dogs.word, dogs.lemma, dogs.phrase) == ("dogs", "dog", "dogs")
    assert [(a.word, a.lemma, a.kind) for a in dogs.attributes] == [
        ("two", "two", "numeral"),
        ("smaller", "small", "adjective"),
    ]
    assert [(a.word, a.lemma, a.kind) for a in cars.attributes] == [("parked", "parked", "participle")]
    (relation,) = graph.relations
    assert (relation.words, relation.lemma) == ("standing in front of", "stand in front of")


@pytest.mark.parametrize(
    ("words", "arcs", "spans"),
    [
        ("in/IN a/DT big/JJ red/JJ fire/NN truck/NN", "case>6 det>6 amod>6 amod>6 compound>6 root>0", [(1, 6)]),
        ("a/DT group/NN of/IN men~man/NNS", "det>2 root>0 case>4 nmod>2", [(0, 4)]),
        ("my/PRP$ dog/NN 's/POS old/JJ hat/NN", "nmod:poss>2 nmod:poss>5 case>2 amod>5 root>0", [(0, 2), (0, 5)]),
        ("a/DT very/RB tall/JJ man/NN there/RB", "det>4 advmod>3 amod>4 root>0 advmod>4", [(0, 4)]),
        ("John/NNP Smith/NNP", "root>0 flat>1", [(0, 2)]),
    ],
)
def test_spans_hold_determiners_and_modifiers_before_the_noun(
    words: str, arcs: str, spans: list[tuple[int, int]]
) -> None:
    assert [(thing.start, thing.end) for thing in extract_graph(parsed(words, arcs)).objects] == spans


def test_kinds_of_counting() -> None:
    words = "both/DT dogs~dog/NNS ,/. 2/CD cats~cat/NNS ,/. few/JJ birds~bird/NNS"
    graph = extract_graph(parsed(words, "det>2 root>0 punct>5 nummod>5 conj>2 punct>8 amod>8 conj>2"))
    kinds = [attribute.kind for thing in graph.objects for attribute in thing.attributes]
    assert kinds == ["quantifier", "numeral", "quantifier"]


def test_quantifiers_and_numerals_of_heads() -> None:
    words = "one/CD of/IN the/DT dogs~dog/NNS and/CC a/DT pair/NN of/IN shoes~shoe/NNS"
    graph = extract_graph(parsed(words, "root>0 case>4 det>4 nmod>1 cc>7 det>7 conj>1 case>9 nmod>7"))
    assert [(a.word, a.kind) for thing in graph.objects for a in thing.attributes] == [
        ("one", "numeral"),
        ("pair", "quantifier"),
    ]


def test_which_one_is_no_attribute() -> None:
    graph = extract_graph(
        parsed("another/JJ man/NN and/CC the/DT same/JJ dog/NN", "amod>2 root>0 cc>6 det>6 amod>6 conj>2")
    )
    assert not attributes(graph)


def test_an_attribute_is_given_once() -> None:
    words = "a/DT red/JJ car/NN that/WDT is~be/VBZ=AUX red/JJ"
    graph = extract_graph(parsed(words, "det>3 amod>3 root>0 nsubj>6 cop>6 acl:relcl>3"))
    assert attributes(graph) == listed("red car")


@pytest.mark.parametrize(
    ("words", "arcs", "scene"),
    [
        ("the/DT beach/NN", "det>2 root>0", True),
        ("beaches~beach/NNS", "root>0", True),
        ("a/DT parking/NN lot/NN", "det>3 compound>3 root>0", True),
        ("a/DT lot/NN", "det>2 root>0", False),
        ("the/DT woods~wood/NNS", "det>2 root>0", True),
        ("wood/NN", "root>0", False),
        ("a/DT beach/NN ball/NN", "det>3 compound>3 root>0", False),
        ("a/DT hotel/NN room/NN", "det>3 compound>3 root>0", True),
    ],
)
def test_scenes(words: str, arcs: str, scene: bool) -> None:
    assert [thing.is_scene for thing in extract_graph(parsed(words, arcs)).objects] == [scene]


def test_long_enumerations_are_bounded() -> None:
    nouns = [f"thing{number}/NN" for number in range(500)]
    words = " ".join([*nouns, "hold/VBP", *nouns])
    arcs = " ".join(["nsubj>501", *["conj>1"] * 499, "root>0", "obj>501", *["conj>502"] * 499])
    graph = extract_graph(parsed(words, arcs))
    assert len(graph.objects) == 1000
    assert len(graph.relations) == 64


def test_the_same_relation_is_given_once() -> None:
    words = "a/DT dog/NN bites~bite/VBZ a/DT man/NN and/CC bites~bite/VBZ him/PRP"
    graph = extract_graph(parsed(words, "det>2 nsubj>3 root>0 det>5 obj>3 cc>7 conj>3 obj>7"))
    assert relations(graph) == listed("dog (bite) man")


def test_an_empty_document() -> None:
    assert extract_graph(Doc(Vocab())) == SceneGraph()


@pytest.mark.parametrize(
    ("missing", "what"), [("deps", "dependency heads"), ("pos", "parts of speech"), ("lemmas", "lemmas")]
)
def test_a_document_without_parse_is_refused(missing: str, what: str) -> None:
    annotations: dict[str, list[str] | list[int]] = {
        "heads": [1, 1],
        "deps": ["det", "root"],
        "pos": ["DET", "NOUN"],
        "lemmas": ["a", "dog"],
    }
    del annotations[missing]
    if missing == "deps":
        del annotations["heads"]
    with pytest.raises(ValueError, match=f"no {what}.*parse it with a pipeline"):
        extract_graph(Doc(Vocab(), words=["a", "dog"], **annotations))


def test_spacy_is_not_imported_before_there_is_a_document() -> None:
    code = "import sys, preprocessing.captions.scene_graph; sys.exit('spacy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def listing(text: str) -> list[str]:
    return text.split()


LABELS = listing(
    """
acl acl:relcl advcl advmod amod appos aux aux:pass case cc ccomp compound compound:prt conj cop csubj dep det discourse
expl fixed flat goeswith iobj list mark nmod nmod:poss nsubj nsubj:pass nummod obj obl obl:agent obl:unmarked orphan
parataxis punct root vocative xcomp
"""
)
CLEARNLP_LABELS = listing(
    """
ROOT acl acomp advcl advmod agent amod appos attr aux auxpass case cc ccomp compound conj dative det dobj expl mark meta
nmod npadvmod nsubj nsubjpass nummod oprd parataxis pcomp pobj poss predet prep prt quantmod relcl xcomp
"""
)
WORDS = listing(
    """
a/DT one/CD dog/NN dogs~dog/NNS man/NN group/NN front/NN top/NN body/NN lot/NN each/DT other/JJ next/RB close/JJ red/JJ
light/JJ blue/JJ is~be/VBZ is~be/VBZ=AUX runs~run/VBZ running~run/VBG parked~park/VBN of/IN in/IN to/TO with/IN by/IN
up/RP his/PRP$ it/PRP they/PRP himself/PRP that/WDT whose/WP$ where/WRB there/EX 's/POS -/HYPH Rome/NNP and/CC
"""
)


@st.composite
def wild_parses(draw: st.DrawFn) -> tuple[str, str]:
    """Words at random with heads and labels at random: forests, tangles and cycles."""
    words = draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=14))
    labels = draw(st.sampled_from([LABELS, CLEARNLP_LABELS, LABELS + CLEARNLP_LABELS, ["case", "nmod", "conj", "obl"]]))
    arcs = [f"{draw(st.sampled_from(labels))}>{draw(st.integers(0, len(words)))}" for _ in words]
    return " ".join(words), " ".join(arcs)


@given(wild_parses())
@example(("runs/VBZ dog/NN", "acl>2 conj>0"))  # the last word is a conjunct of nothing
def test_no_parse_is_too_strange(parse: tuple[str, str]) -> None:
    words, arcs = parse
    graph = extract_graph(parsed(words, arcs))
    count = len(words.split())
    for thing in graph.objects:
        assert 0 <= thing.start < thing.end <= count
        assert all([thing.word, thing.lemma, thing.phrase])
    for relation in graph.relations:
        assert relation.subject != relation.object
        assert {relation.subject, relation.object} <= set(range(len(graph.objects)))
        assert all([relation.words, relation.lemma])
    assert len({(r.subject, r.object, r.lemma) for r in graph.relations}) == len(graph.relations)
    assert extract_graph(parsed(words, arcs)) == graph


CHAINS = {
    "verbs that continue each other": ("runs~run/VBZ", "xcomp"),
    "verbs in a row": ("runs~run/VBZ", "conj"),
    "nouns in a row": ("dog/NN", "conj"),
    "nouns that modify each other": ("dog/NN", "nmod"),
    "owners of owners": ("his/PRP$", "nmod:poss"),
    "clauses in clauses": ("that/WDT", "acl:relcl"),
    "compounds": ("dog/NN", "compound"),
    "prepositions": ("in/IN", "prep"),
    "quantifiers": ("group/NN", "nmod"),
    "pronouns": ("they/PRP", "nsubj"),
}


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("forward", [True, False])
def test_long_chains_are_read(name: str, forward: bool) -> None:
    word, label = CHAINS[name]
    count = 2000
    words = " ".join(["a/DT", "man/NN", "sees~see/VBZ", *[word] * count, "a/DT", "dog/NN"])
    heads = range(3, count + 3) if forward else [*range(5, count + 4), 3]
    arcs = " ".join(["det>2", "nsubj>3", "root>0", *[f"{label}>{head}" for head in heads], f"det>{count + 5}", "obj>3"])
    doc = parsed(words, arcs)
    assert objects(extract_graph(doc)).startswith("man")

"""Scene graphs beyond subjects and objects: pronouns, places, offsets, and parses that are wrong."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from preprocessing.captions.graph import SceneGraph
from preprocessing.captions.scene_graph.parse import extract_graph
from tests.preprocessing.captions.scene_graph.parses import listed, objects, parsed, relations


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


def test_an_empty_document() -> None:
    assert extract_graph(parsed("", "")) == SceneGraph()


def listing(text: str) -> list[str]:
    return text.split()


LABELS = listing(
    """
acl acl:relcl advcl advmod amod appos aux aux:pass case cc ccomp compound compound:prt conj cop csubj dep det discourse
expl fixed flat goeswith iobj list mark nmod nmod:poss nsubj nsubj:pass nummod obj obl obl:agent obl:unmarked orphan
parataxis punct root vocative xcomp
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
    labels = draw(st.sampled_from([LABELS, ["case", "nmod", "conj", "obl"]]))
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
    "prepositions": ("in/IN", "case"),
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
    assert objects(extract_graph(parsed(words, arcs))).startswith("man")

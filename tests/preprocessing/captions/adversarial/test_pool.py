"""Adversarial captions of a batch: some of each caption's own, the same in every process, others each epoch."""

from pathlib import Path

from preprocessing.captions.adversarial.pool import AdversarialPool
from preprocessing.captions.vocabulary import Vocabulary

TEXTS = [["a dog", "a cat", "a red hat"], [], ["two dogs"], ["grass", "snow"]]
WORDS = Vocabulary.build((text for texts in TEXTS for text in texts), 1)


def test_the_pool_of_files_draws_as_the_one_in_memory(tmp_path: Path) -> None:
    pool = AdversarialPool.encode(TEXTS, WORDS)
    pool.save(tmp_path)
    mapped = AdversarialPool.load(tmp_path)
    orders = set()
    for epoch in range(60):
        for caption, texts in enumerate(TEXTS):
            drawn = [ids.tolist() for ids in pool.draw(caption, epoch, 3, 2)]
            assert drawn == [ids.tolist() for ids in mapped.draw(caption, epoch, 3, 2)]
            assert len(drawn) == min(2, len(texts))
            own = [WORDS.encode(text) for text in texts]
            assert all(drawn.count(ids) == 1 and ids in own for ids in drawn)
            orders.add((caption, str(drawn)))
    assert len([caption for caption, _ in orders if caption == 0]) == 6, "two of three, in any order"

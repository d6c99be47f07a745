"""Images without some of their views: similarity and gradient are those of the views that stay."""

import torch
from torch import nn

from tests.vse_core.training.tiny_views import TinyViews, random_batch
from vse_core.losses import build_loss
from vse_core.similarity import similarity_matrix
from vse_core.training.view_dropout import ViewDropout

# Views 0 and 2 of the first image stay, view 1 of the second; the third has all.
PLACES = torch.tensor([[0, 2, 2], [1, 1, 1], [0, 1, 2]])
KEPT = [[0, 2], [1], [0, 1, 2]]


def test_similarities_are_those_of_the_views_that_stay():
    model = TinyViews(views=3)
    inputs, _ = random_batch(3, seed=0)
    images, texts = ViewDropout(model)(PLACES, *inputs)
    whole, expected_texts = model(*inputs)
    assert torch.equal(texts, expected_texts)
    for row, kept in enumerate(KEPT):
        expected = torch.stack([whole[row, view] @ texts.T for view in kept]).amax(dim=0)
        torch.testing.assert_close(similarity_matrix(images, texts)[row], expected)


def test_a_view_that_is_left_out_learns_nothing():
    views = torch.randn(3, 3, 8, requires_grad=True)
    texts = nn.functional.normalize(torch.randn(3, 8), dim=-1)

    class Given(nn.Module):
        def forward(self) -> tuple[torch.Tensor, torch.Tensor]:
            return nn.functional.normalize(views, dim=-1), texts

    images, _ = ViewDropout(Given())(PLACES)
    build_loss("infonce", bound="avg")(images, texts, torch.arange(3)).total.backward()
    has_gradient = views.grad.abs().sum(dim=2) > 0
    assert has_gradient.tolist() == [[view in kept for view in range(3)] for kept in KEPT]


def test_it_holds_for_models_with_further_outputs():
    class Three(nn.Module):
        def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, int, None]:
            return images, 7, None

    images, *others = ViewDropout(Three())(PLACES, torch.eye(3).expand(3, 3, 3))
    assert others == [7, None]
    assert images.argmax(dim=2).tolist() == PLACES.tolist()

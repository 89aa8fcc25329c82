"""The `loss_function` of Hugging Face style models is swapped for cutepy's, if it is the loss of next tokens."""

import copy
import pickle

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

import cutepy  # noqa: E402
from cutepy.nn import replace  # noqa: E402
from cutepy.nn.model_losses import FUNCTION, NextTokenLoss  # noqa: E402
from tests.messages import pins  # noqa: E402

functional = torch.nn.functional
BF16 = torch.bfloat16


def next_token_loss(
    logits, labels, vocab_size, num_items_in_batch=None, ignore_index=-100, shift_labels=None, **others
):
    """As Hugging Face's of causal models."""
    if shift_labels is None:
        shift_labels = functional.pad(labels, (0, 1), value=ignore_index)[..., 1:]
    reduction = "mean" if num_items_in_batch is None else "sum"
    rows = logits.float().reshape(-1, vocab_size)
    loss = functional.cross_entropy(rows, shift_labels.reshape(-1), ignore_index=ignore_index, reduction=reduction)
    return loss if num_items_in_batch is None else loss / num_items_in_batch


def this_token_loss(logits, labels, vocab_size, **others):
    return functional.cross_entropy(logits.float().reshape(-1, vocab_size), labels.reshape(-1))


def without_options(logits, labels, vocab_size):
    return next_token_loss(logits, labels, vocab_size)


def of_rows(rows):
    return rows.sum()


class Model(torch.nn.Module):
    """Calls an attribute that may be set, as Hugging Face's models do."""

    _loss_function = staticmethod(next_token_loss)

    def __init__(self, function=next_token_loss):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(7, 8, generator=torch.Generator().manual_seed(0)).to(BF16))
        self._loss_function = function

    @property
    def loss_function(self):
        return self._loss_function

    @loss_function.setter
    def loss_function(self, function):
        self._loss_function = function

    def forward(self, x, labels, **named):
        return self.loss_function(logits=x @ self.weight.mT, labels=labels, vocab_size=7, **named)


class Fixed(Model):
    """Has a function that can't be set."""

    @property
    def loss_function(self):
        return next_token_loss


class Direct(torch.nn.Module):
    def forward(self, logits, labels):
        return functional.cross_entropy(logits, labels)


class WithModule(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cross_entropy = torch.nn.CrossEntropyLoss()

    def forward(self, logits, labels):
        return self.cross_entropy(logits, labels)


def batch():
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(1)).to(BF16)
    return x, torch.tensor([[1, 2, -100, 4, 6], [0, 3, 3, -100, 5]])


@pytest.mark.integration
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_items_in_batch": torch.tensor(5)},
        {"num_items_in_batch": 5},
        {"ignore_index": 3},
        {"shift_labels": torch.tensor([[1, 2, 0, 4, 6], [0, 3, 3, -100, 5]])},
    ],
    ids=["plain", "a count on a device", "a count", "another index", "shifted"],
)
def test_it_computes_what_it_did_from_logits_of_16_bits(options):
    theirs, (x, labels) = Model(), batch()
    labels = labels.clamp(min=0) if "ignore_index" in options else labels
    ours = copy.deepcopy(theirs)
    assert replace(ours).swapped == {FUNCTION: f"{__name__}.{FUNCTION}"}
    with cutepy.simulate() as run:
        found = ours(x, labels, **options)
        found.backward()
    assert [launch.kernel.split("_")[1] for launch in run.launches] == ["cross", "mean", "cross"]
    wanted = theirs(x, labels, **options)
    wanted.backward()
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad, rtol=2**-6, atol=2**-8)


def test_other_calls_are_passed_on():
    seen = []

    def counted(*given, **named):
        seen.append(named)
        return next_token_loss(*given, **named)

    model = Model(counted)
    replace(model)
    seen.clear()
    (x, labels), own = batch(), model.loss_function
    logits = x @ model.weight.mT
    own(logits, labels, 7, reduction="sum")
    own(logits.double(), labels, 7)
    own(logits[..., :6], labels[:, :5].clamp(max=5), 6)
    assert seen == [{"reduction": "sum"}, {}]
    with pytest.raises(TypeError):
        own()
    short = Model(without_options)
    replace(short)
    with pytest.raises(TypeError):
        short(x, labels, num_items_in_batch=3)


def test_the_report_says_which_losses_stay_theirs_and_why():
    models = torch.nn.ModuleDict(
        {
            "own": Model(),
            "other": Model(this_token_loss),
            "rows": Model(of_rows),
            "fixed": Fixed.__new__(Fixed),
            "direct": Direct(),
            "left": Model(),
            "module": WithModule(),
        }
    )
    torch.nn.Module.__init__(models["fixed"])
    done = replace(models, lambda name, module: not name.startswith("left"))
    pins(str(done))
    assert isinstance(models["own"].loss_function, NextTokenLoss)
    for name, function in (("other", this_token_loss), ("rows", of_rows), ("left", next_token_loss)):
        assert models[name].loss_function is function
    assert replace(models["own"]).kept[FUNCTION] == "it is cutepy's"


def test_it_is_copied_and_pickled_with_the_model():
    model, (x, labels) = Model(), batch()
    replace(model)
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert isinstance(again.loss_function, NextTokenLoss)
        assert torch.equal(again(x, labels), model(x, labels))
    model.loss_function = this_token_loss  # theirs to set
    assert model.loss_function is this_token_loss

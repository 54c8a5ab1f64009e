"""Products added where the sum lies: the same numbers, and never in memory that others read."""

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_cache, run_and_get_code
from torch.fx.experimental.proxy_tensor import make_fx

from cloze.train.inplace_addmm import OPTIONS, InPlaceAddmm

# torch's own compiler imports a module of torch that warns
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


@torch.library.custom_op("trial::halves", mutates_args=())
def halves(x: Tensor) -> tuple[Tensor, Tensor]:
    """Two new tensors, as a kernel gives the gradients of both things it added."""
    return x / 2, x / 2


@halves.register_fake
def _(x):
    return torch.empty_like(x), torch.empty_like(x)


@torch.library.custom_op("trial::mean", mutates_args=())
def mean(x: Tensor, added: Tensor) -> Tensor:
    """Stands in for the normed sum."""
    return (x + added) / 2


mean.register_fake(lambda x, _: torch.empty_like(x))
mean.register_autograd(lambda _, slope: halves(slope))


class Block(nn.Module):
    """Two sub-layers of one matrix each, as a post-norm block adds them."""

    def __init__(self, width):
        super().__init__()
        self.lower = nn.Linear(width, width, bias=False)
        self.upper = nn.Linear(width, width, bias=False)

    def forward(self, x):
        x = mean(x, self.lower(x))
        return mean(x, self.upper(x))


@pytest.fixture(autouse=True)
def forgotten():
    """What is compiled in one test is not there in another."""
    torch.compiler.reset()
    with fresh_cache():
        yield
    torch.compiler.reset()


def block():
    one = Block(8)
    rng = torch.Generator().manual_seed(1)
    for weight in one.parameters():
        nn.init.normal_(weight, generator=rng)
    return one


def learnt(options):
    """Everything three steps find, and the code of the way back."""
    one = block()
    one.compile(dynamic=False, options=options)
    rng = torch.Generator().manual_seed(2)
    found = []

    def steps():
        for _ in range(3):
            x = torch.randn(6, 8, generator=rng).requires_grad_()
            y = one(x)
            y.square().sum().backward()
            found.extend([y.detach(), x.grad])
            with torch.no_grad():
                for weight in one.parameters():
                    found.append(weight.grad)
                    weight.sub_(weight.grad, alpha=0.01)
                    weight.grad = None

    _, codes = run_and_get_code(steps)
    return found, codes[-1]


def test_the_same_numbers_without_a_copy():
    expected, before = learnt({})
    found, after = learnt(OPTIONS)
    assert before.count("extern_kernels.addmm(") == 2
    assert after.count("cloze.add_product.default(") == 2
    assert "addmm" not in after
    assert "cpp_fused" not in after  # no kernel is left that could be a copy
    assert len(expected) == len(found) == 12
    assert all(map(torch.equal, expected, found))


def test_a_compiled_graph_is_found_again():
    learnt(OPTIONS)
    torch.compiler.reset()
    counters.clear()
    learnt(OPTIONS)
    assert (
        counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"]
    )
    assert not counters["inductor"]["fxgraph_cache_miss"]
    assert not counters["inductor"]["fxgraph_cache_bypass"]


def test_layers_share_what_is_compiled():
    layers = nn.Sequential(block(), block(), block())
    for layer in layers:
        layer.compile(dynamic=False, options=OPTIONS)
    counters.clear()
    layers(torch.ones(6, 8, requires_grad=True)).sum().backward()
    assert counters["stats"]["unique_graphs"] == 1


def rewritten(function):
    """Whether the product is added in place, in a graph of three square matrices."""
    graph = make_fx(function, tracing_mode="fake")(*(torch.ones(4, 4) for _ in range(3))).graph
    before = str(graph)
    InPlaceAddmm()(graph)
    graph.lint()
    calls = [node for node in graph.nodes if "auto_functionalized" in str(node.target)]
    assert calls or str(graph) == before
    return bool(calls)


def alone(x, a, b):
    return torch.addmm(halves(x)[0], a, b)


def of_a_view(x, a, b):
    return torch.addmm(halves(x)[0].view(2, 8).view(4, 4), a, b)


def of_a_product(x, a, b):
    return torch.addmm(x @ a, a, b)


@pytest.mark.parametrize("function", [alone, of_a_view, of_a_product])
def test_what_nobody_else_reads_is_changed(function):
    assert rewritten(function)


def read_before(x, a, b):
    total = halves(x)[0]
    return torch.addmm(total, total @ a, b)


def read_after(x, a, b):
    total = halves(x)[0]
    return torch.addmm(total, a, b) @ total


def handed_out(x, a, b):
    total = halves(x)[0]
    return torch.addmm(total, a, b), total


def a_view_of_it_is_read(x, a, b):
    total = halves(x)[0]
    return torch.addmm(total, a, b), total[0]


def it_is_a_view_of_what_is_read(x, a, b):
    whole = halves(x)[0]
    return torch.addmm(whole.view(4, 4), a, b) @ whole


def handed_in(x, a, b):
    return torch.addmm(x, a, b)


def a_view_of_what_is_handed_in(x, a, b):
    return torch.addmm(x.view(2, 8).view(4, 4), a, b)


def its_own_factor(x, a, b):
    total = halves(x)[0]
    return torch.addmm(total, total, b)


def its_own_factor_turned(x, a, b):
    total = halves(x)[0]
    return torch.addmm(total, a, total.t())


def a_bias(x, a, b):
    return torch.addmm(halves(x[0])[0], a, b)


def turned(x, a, b):
    return torch.addmm(halves(x)[0].t(), a, b)


def scaled(x, a, b):
    return torch.addmm(halves(x)[0], a, b, alpha=2)


def other_ops(x, a, b):
    return halves(x)[0] + a @ b


KEPT = [
    read_before,
    read_after,
    handed_out,
    a_view_of_it_is_read,
    it_is_a_view_of_what_is_read,
    handed_in,
    a_view_of_what_is_handed_in,
    its_own_factor,
    its_own_factor_turned,
    a_bias,
    turned,
    scaled,
    other_ops,
]


@pytest.mark.parametrize("function", KEPT)
def test_what_others_read_is_kept(function):
    assert not rewritten(function)


def test_what_is_kept_is_right_when_compiled():
    def all_of_them(x, a, b):
        return [function(x, a, b) for function in (read_before, read_after, handed_out, handed_in)]

    rng = torch.Generator().manual_seed(3)
    given = [torch.randn(4, 4, generator=rng) for _ in range(3)]
    copies = [one.clone() for one in given]
    found = torch.compile(all_of_them, dynamic=False, options=OPTIONS)(*given)
    torch.testing.assert_close(found, all_of_them(*given))
    assert all(map(torch.equal, given, copies))

"""Add a product to a sum where the sum lies.

Two gradients meet below each sub-layer: what comes straight down and what comes back through a
matrix. Torch compiles their sum to addmm, which first copies the one into a new place and then adds
the product there. Where nobody else reads it, the product can be added to it where it is.
"""

import operator
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, fx
from torch._higher_order_ops.auto_functionalize import auto_functionalized
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch._inductor.fx_utils import get_node_storage

Places = dict[int | None, list[fx.Node]]  # the values that lie in one piece of memory


@torch.library.custom_op("cloze::add_product", mutates_args=("total",))
def add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """The sum of both: total + a·b, where total was."""
    total.addmm_(a, b)


class AddProductsInPlace(CustomGraphPass):
    """Rewrite a graph that torch compiles: for `post_grad_custom_post_pass`."""

    def __call__(self, graph: fx.Graph) -> None:
        nodes = graph.find_nodes(op="call_function", target=torch.ops.aten.addmm.default)
        if not nodes:
            return
        places = _places(graph)
        for node in nodes:
            if not node.kwargs and _is_last_reader(node, places) and _fits(node):
                _replace(graph, node)

    def uuid(self) -> bytes:
        """Torch keeps compiled graphs on disk: those of another version of this file are others."""
        return get_hash_for_files((__file__,))


# one for all modules: torch shares what it compiled only where the options are equal
IN_PLACE: dict[str, Any] = {"post_grad_custom_post_pass": AddProductsInPlace()}


def _places(graph: fx.Graph) -> Places:
    places: Places = defaultdict(list)
    for node in graph.nodes:
        places[get_node_storage(node)].append(node)
    return places


def _is_last_reader(node: fx.Node, places: Places) -> bool:
    """Whether only this addmm reads the memory of its total, and only as its total.

    That memory must be the graph's own: what is handed in belongs to others, and what is handed out
    is read.
    """
    total, *factors = node.args
    assert isinstance(total, fx.Node)
    memory = get_node_storage(total)
    if memory is None:
        return False
    same = places[memory]  # views of it too
    readers = {user for one in same for user in one.users if user not in same}
    own = all(one.op == "call_function" for one in same)
    return own and readers == {node} and not any(factor in same for factor in factors)


def _fits(node: fx.Node) -> bool:
    """Whether the total is as large as the result, not a bias for every row, and laid out alike."""
    total, result = node.args[0].meta["val"], node.meta["val"]  # type: ignore[union-attr]
    same = total.shape == result.shape and total.dtype == result.dtype
    return same and total.is_contiguous() and result.is_contiguous()


def _replace(graph: fx.Graph, node: fx.Node) -> None:
    """Torch is told what is changed as it tells itself, and so checks once more that it may be.

    Had this missed a later reader of the total, torch would hand a copy to the product.
    """
    total, a, b = node.args
    with graph.inserting_before(node):
        call = graph.call_function(
            auto_functionalized,
            (torch.ops.cloze.add_product.default,),
            {"total": total, "a": a, "b": b},
        )
        changed = graph.call_function(operator.getitem, (call, 1))
    call.meta["val"] = (None, node.meta["val"])
    changed.meta["val"] = node.meta["val"]
    node.replace_all_uses_with(changed)
    graph.erase_node(node)

"""A graph pass for torch.compile: add a matrix product to a tensor in place.

Two gradients are added below each sub-layer: that of the residual connection, and that through a
linear layer. torch compiles their sum to addmm, which first copies the former to new memory. If
nothing else reads it, the product can be added to it in place.
"""

import operator
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, fx
from torch._higher_order_ops.auto_functionalize import auto_functionalized
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch._inductor.fx_utils import get_node_storage

NodesByStorage = dict[int | None, list[fx.Node]]


@torch.library.custom_op("cloze::add_product", mutates_args=("total",))
def add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Total += a·b, in place."""
    total.addmm_(a, b)


class InPlaceAddmm(CustomGraphPass):
    """Replaces addmm by `add_product` where possible: for `post_grad_custom_post_pass`."""

    def __call__(self, graph: fx.Graph) -> None:
        nodes = graph.find_nodes(op="call_function", target=torch.ops.aten.addmm.default)
        if not nodes:
            return
        by_storage = _group_by_storage(graph)
        for node in nodes:
            if not node.kwargs and _is_only_reader(node, by_storage) and _has_same_layout(node):
                _replace(graph, node)

    def uuid(self) -> bytes:
        """The key of compiled graphs in torch's cache on disk; it changes with this file."""
        return get_hash_for_files((__file__,))


# one object for all modules: torch shares compiled code only between equal options
OPTIONS: dict[str, Any] = {"post_grad_custom_post_pass": InPlaceAddmm()}


def _group_by_storage(graph: fx.Graph) -> NodesByStorage:
    by_storage: NodesByStorage = defaultdict(list)
    for node in graph.nodes:
        by_storage[get_node_storage(node)].append(node)
    return by_storage


def _is_only_reader(node: fx.Node, by_storage: NodesByStorage) -> bool:
    """Whether only this addmm reads the memory of its total, and only as its total.

    The memory must belong to the graph: inputs and outputs are read by others.
    """
    total, *factors = node.args
    assert isinstance(total, fx.Node)
    storage = get_node_storage(total)
    if storage is None:
        return False
    aliases = by_storage[storage]  # including views
    readers = {user for one in aliases for user in one.users if user not in aliases}
    is_internal = all(one.op == "call_function" for one in aliases)
    return is_internal and readers == {node} and not any(factor in aliases for factor in factors)


def _has_same_layout(node: fx.Node) -> bool:
    """Whether the total has the shape and layout of the result; it might be a bias."""
    total, result = node.args[0].meta["val"], node.meta["val"]  # type: ignore[union-attr]
    is_same = total.shape == result.shape and total.dtype == result.dtype
    return is_same and total.is_contiguous() and result.is_contiguous()


def _replace(graph: fx.Graph, node: fx.Node) -> None:
    """Replace a node by a functionalized `add_product`, which torch then verifies.

    If this pass had missed a later reader of the total, torch would copy it first.
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

"""Schemas of operations from annotations."""

from collections.abc import Sequence

import torch

from cutepy.ops.schemas import schema_of_function

OptionalTensor = torch.Tensor | None


def everything(
    x: torch.Tensor,
    y: OptionalTensor,
    xs: Sequence[torch.Tensor],
    n: Sequence[int],
    left: int | None,
    kind: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]: ...


def defaults(
    x: torch.Tensor, how: str, scale: float = 0.5, to: torch.dtype | None = None, on: bool = True
) -> torch.Tensor: ...


def test_torch_reads_the_schema_as_it_is_meant():
    text = schema_of_function("a::b", defaults)
    assert text == "a::b(Tensor x, str how, float scale=0.5, ScalarType? to=None, bool on=True) -> Tensor"
    parsed = torch._C.parse_schema(text)
    assert [each.has_default_value() for each in parsed.arguments] == [False, False, True, True, True]
    arguments = "Tensor x, Tensor? y, Tensor[] xs, int[] n, int? left, ScalarType kind"
    assert schema_of_function("a::b", everything) == f"a::b({arguments}) -> (Tensor, Tensor)"
    assert len(torch._C.parse_schema(schema_of_function("a::b", everything)).returns) == 2

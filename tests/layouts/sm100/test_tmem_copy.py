"""tcgen05.ld and tcgen05.st: the ISA's figures as formulas, and laws of the maps."""

from itertools import product

import pytest

from cutepy.layouts import LayoutError, idx2crd, sm100
from cutepy.layouts.sm100.tmem_copy import SHAPES
from tests.messages import refuses

PLACES = {
    # PTX ISA, figures of "Matrix fragments for shape ...": lane and column of register j of thread t.
    "32x32b": lambda t, j, split: (t, j),
    "16x64b": lambda t, j, split: (t // 4 + 8 * (t % 2), t // 2 % 2 + 2 * j),
    "16x128b": lambda t, j, split: (t // 4 + 8 * (j % 2), t % 4 + 4 * (j // 2)),
    "16x256b": lambda t, j, split: (t // 4 + 8 * (j // 2 % 2), 2 * (t % 4) + j % 2 + 8 * (j // 4)),
    "16x32bx2": lambda t, j, split: (t % 16, t // 16 * split + j),
}
REGISTERS = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}
CASES = [(shape, 1 << p) for shape, parts in SHAPES.items() for p in range(parts.most.bit_length())]


@pytest.mark.parametrize(("shape", "repeats"), CASES)
def test_places_are_those_of_the_isas_figures(shape, repeats):
    load = sm100.tmem_load_traits(shape, repeats)
    assert load.registers == REGISTERS[shape] * repeats <= 128
    for t, j in product(range(32), range(load.registers)):
        assert load.layout(t, j) == PLACES[shape](t, j, load.split_columns)


@pytest.mark.parametrize(("shape", "repeats"), CASES)
def test_every_cell_is_read_once(shape, repeats):
    for packed in (False, True):
        load = sm100.tmem_load_traits(shape, repeats, packed=packed)
        cells = {load.layout(t, j) for t, j in product(range(32), range(load.registers))}
        assert len(cells) == 32 * load.registers
        assert {lane for lane, _ in cells} == set(range(load.lanes))
        halves = {
            load.halves_layout(t, (h, *_register(load, j)))
            for t, j, h in product(range(32), range(load.registers), range(2))
        }
        width = 2 * load.columns
        assert len(halves) == 64 * load.registers
        low = {half for _, half in halves}
        assert low == ({h for h in range(width) if h % 2 == 0} if packed else set(range(width)))


def _register(load, j):
    """The coordinate of register j, as modes behind that of the half."""
    coordinate = idx2crd(j, load.layout.shape[1])
    return coordinate if isinstance(coordinate, tuple) else (coordinate,)


@pytest.mark.parametrize(("shape", "repeats"), CASES[::3])
def test_packed_registers_hold_low_halves_of_two_columns(shape, repeats):
    plain, packed = (sm100.tmem_load_traits(shape, repeats, packed=p) for p in (False, True))
    for t, j in product(range(32), range(plain.registers)):
        lane, column = plain.layout(t, j)
        assert packed.layout(t, j) == (lane, 2 * column)
        for half in (0, 1):
            assert packed.halves_layout(t, (half, *_register(packed, j))) == (lane, 2 * (2 * column + half))


@pytest.mark.parametrize(("shape", "repeats"), CASES[::2])
def test_cutes_layouts_of_bits_say_the_same(shape, repeats):
    """CuTe maps (thread, bit) to bits of tensor memory in two steps, by DstLayout and ValID."""
    for packed in (False, True):
        load = sm100.tmem_load_traits(shape, repeats, packed=packed)
        for t, j in product(range(32), range(load.registers)):
            lane, column = load.layout(t, j)
            bit = load.val_id(load.dst_layout(t, 32 * j))
            assert divmod(bit, 1 << 21) == (lane, 32 * column)
            assert load.val_id(load.dst_layout(t, 32 * j + 16)) - bit == (32 if packed else 16)


def test_stores_are_loads_the_other_way():
    for shape, repeats in CASES[::4]:
        load, store = sm100.tmem_load_traits(shape, repeats), sm100.tmem_store_traits(shape, repeats)
        assert (load.layout, load.src_layout, load.dst_layout) == (store.layout, store.dst_layout, store.src_layout)
        assert store.ptx == load.ptx.replace(".ld.", ".st.")


@pytest.mark.parametrize(
    "wrong",
    [
        {"shape": "8x32b"},
        {"repeats": 3},
        {"shape": "16x256b", "repeats": 64},
        {"shape": "16x128b", "repeats": 128},
        {"split_columns": 4},
        {"shape": "16x32bx2", "split_columns": -1},
    ],
    ids=str,
)
def test_instructions_that_do_not_exist_are_refused(wrong):
    with refuses(LayoutError):
        sm100.tmem_load_traits(**{"shape": "32x32b", "repeats": 1} | wrong)


def test_names_are_one_for_each_instruction():
    names = sm100.tmem_copy_names()
    assert len(set(names)) == len(names) == 2 * 2 * len(CASES)

"""Host rules: limits of a pipelined TMA -> wgmma kernel on a Hopper SM, checked before anything compiles.

Everything here is plain Python on plain integers: tile sizes, bytes of a pipeline stage, arrival counts of barriers,
registers of accumulators. Kernel configurations are validated with these rules, and the traced code is built from the
same ones.
"""

from cutepy.device.rules import ragged as ragged
from cutepy.device.rules.barriers import (
    NAMED_BARRIERS as NAMED_BARRIERS,
    check_barrier as check_barrier,
    check_butterfly as check_butterfly,
    check_reduction as check_reduction,
    check_scattered as check_scattered,
    check_slots as check_slots,
    check_turn_threads as check_turn_threads,
    named_barriers as named_barriers,
    reduction_slots as reduction_slots,
)
from cutepy.device.rules.clusters import (
    MAX_CLUSTER_CTAS as MAX_CLUSTER_CTAS,
    PORTABLE_CLUSTER_CTAS as PORTABLE_CLUSTER_CTAS,
    check_multicast as check_multicast,
    check_rows_only as check_rows_only,
    check_schedule as check_schedule,
    check_sharing as check_sharing,
    check_turns as check_turns,
    check_worker as check_worker,
)
from cutepy.device.rules.dequantising import SCALED_COLUMNS as SCALED_COLUMNS, quantised_tile as quantised_tile
from cutepy.device.rules.launches import (
    check_buffer as check_buffer,
    check_cluster as check_cluster,
    check_coordinate as check_coordinate,
    check_number as check_number,
    check_readers as check_readers,
    check_threads as check_threads,
    check_warpgroups as check_warpgroups,
)
from cutepy.device.rules.occupancy import (
    FILLABLE_SMS as FILLABLE_SMS,
    FULL as FULL,
    fillable_sms as fillable_sms,
    fills as fills,
)
from cutepy.device.rules.operands import (
    check_operand_source as check_operand_source,
    check_staged_operand as check_staged_operand,
    step_halves as step_halves,
)
from cutepy.device.rules.partials import (
    PARTIAL_ROWS as PARTIAL_ROWS,
    check_widths as check_widths,
    partial_shape as partial_shape,
)
from cutepy.device.rules.promotion import (
    COLUMN_GROUP as COLUMN_GROUP,
    K_BLOCK as K_BLOCK,
    ScaleStage as ScaleStage,
    block_range as block_range,
    check_promotion as check_promotion,
    check_tma_scales as check_tma_scales,
    column_offsets as column_offsets,
    fitting_buffers as fitting_buffers,
    row_offsets as row_offsets,
    staged_scales as staged_scales,
)
from cutepy.device.rules.registers import (
    RegisterBudget as RegisterBudget,
    check_accumulators as check_accumulators,
    register_budget as register_budget,
)
from cutepy.device.rules.rings import (
    CP_ASYNC_BYTES as CP_ASYNC_BYTES,
    MAX_TRANSACTION_BYTES as MAX_TRANSACTION_BYTES,
    TMA_BYTES as TMA_BYTES,
    check_exchange as check_exchange,
    check_mixed_ring as check_mixed_ring,
    check_overlap as check_overlap,
    check_pieces as check_pieces,
    check_ring as check_ring,
    check_stored_ring as check_stored_ring,
    empty_barrier_arrivals as empty_barrier_arrivals,
    exchange_bytes as exchange_bytes,
    full_barrier_arrivals as full_barrier_arrivals,
    owners as owners,
    partial_bytes as partial_bytes,
    piece_threads as piece_threads,
)
from cutepy.device.rules.shares import Shares as Shares, parts_of as parts_of
from cutepy.device.rules.staging import (
    check_contiguous_mode as check_contiguous_mode,
    check_copied_type as check_copied_type,
    check_copy_tile as check_copy_tile,
    check_covering as check_covering,
    check_multiplied as check_multiplied,
    check_operand_major as check_operand_major,
    check_registers as check_registers,
    check_sums as check_sums,
    check_tile_of_stages as check_tile_of_stages,
    check_tile_or_part as check_tile_or_part,
    parts_of_stage as parts_of_stage,
    place_of_part as place_of_part,
)
from cutepy.device.rules.tickets import check_tickets as check_tickets, ticket_slots as ticket_slots
from cutepy.device.rules.tiles import (
    MBARRIER_BITS as MBARRIER_BITS,
    SUBTILE_COLUMNS as SUBTILE_COLUMNS,
    accumulator_dtype as accumulator_dtype,
    accumulator_registers as accumulator_registers,
    check_region as check_region,
    check_ring_stages as check_ring_stages,
    check_room as check_room,
    check_smem as check_smem,
    check_stacked as check_stacked,
    check_stages as check_stages,
    check_subtile as check_subtile,
    check_subtile_columns as check_subtile_columns,
    check_whole_columns as check_whole_columns,
    longest_sum as longest_sum,
    multiplied_columns as multiplied_columns,
    staged_columns as staged_columns,
    tile_bytes as tile_bytes,
    wgmma_tiling as wgmma_tiling,
)
from cutepy.device.rules.transposing import TRANSPOSED as TRANSPOSED, check_transposes as check_transposes
from cutepy.device.rules.vectors import (
    check_rows as check_rows,
    check_vector as check_vector,
    vector_elems as vector_elems,
)
from cutepy.device.rules.workspaces import (
    FLAGS as FLAGS,
    check_workspace as check_workspace,
    workspace_shapes as workspace_shapes,
)
from cutepy.layouts.sm90.staged import staged_swizzle as staged_swizzle, widest_swizzle as widest_swizzle

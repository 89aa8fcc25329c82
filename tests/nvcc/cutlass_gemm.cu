// CUTLASS's collectives by its own host code: KIND picks the schedule.
#include "cutlass/cutlass.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#include "cutlass/gemm/kernel/tile_scheduler.hpp"
#include "cutlass/util/packed_stride.hpp"

using namespace cute;
namespace gemms = cutlass::gemm;
namespace epilogues = cutlass::epilogue;

template <class Element, class Schedule, class Epilogue, class Scheduler, class Tile, class Cluster>
struct Make {
    using Column = cutlass::layout::ColumnMajor;
    using Row = cutlass::layout::RowMajor;
    static constexpr int vector = 16 / sizeof(Element);
    using Last = typename epilogues::collective::CollectiveBuilder<
        cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
        epilogues::collective::EpilogueTileAuto, float, float, float, Column, 4, float, Column, 4,
        Epilogue>::CollectiveOp;
    using Main = typename gemms::collective::CollectiveBuilder<
        cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, Row, vector, Element, Column, vector, float,
        Tile, Cluster,
        gemms::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Last::SharedStorage))>,
        Schedule>::CollectiveOp;
    using Kernel = gemms::kernel::GemmUniversal<Shape<int, int, int, int>, Main, Last, Scheduler>;
    using Gemm = gemms::device::GemmUniversalAdapter<Kernel>;
};

#if KIND == 0
using Made = Make<cutlass::half_t, gemms::KernelTmaWarpSpecializedCooperative,
                  epilogues::TmaWarpSpecializedCooperative, void, Shape<_128, _128, _64>, Shape<_2, _1, _1>>;
#elif KIND == 1
using Made = Make<cutlass::bfloat16_t, gemms::KernelTmaWarpSpecializedPingpong, epilogues::TmaWarpSpecialized, void,
                  Shape<_64, _128, _64>, Shape<_1, _1, _1>>;
#elif KIND == 2
using Made = Make<cutlass::half_t, gemms::KernelTmaWarpSpecializedCooperative,
                  epilogues::TmaWarpSpecializedCooperative, gemms::StreamKScheduler, Shape<_128, _128, _64>,
                  Shape<_1, _1, _1>>;
#else
using Made = Make<cutlass::float_e4m3_t, gemms::KernelTmaWarpSpecializedCooperative,
                  epilogues::TmaWarpSpecializedCooperative, void, Shape<_128, _128, _128>, Shape<_1, _2, _1>>;
#endif

extern "C" int gemm(int m, int n, int k, int l, void* a, void* b, float* c, float* d, double alpha, double beta) {
    using Gemm = Made::Gemm;
    using Kernel = Gemm::GemmKernel;
    using A = typename Kernel::ElementA;
    auto stride = [](auto s, int rows, int columns, int batch) {
        return cutlass::make_cute_packed_stride(s, {rows, columns, batch});
    };
    cutlass::KernelHardwareInfo device;
    device.sm_count = 8;
    typename Gemm::Arguments arguments{
        gemms::GemmUniversalMode::kGemm,
        {m, n, k, l},
        {static_cast<A*>(a), stride(typename Kernel::StrideA{}, m, k, l), static_cast<A*>(b),
         stride(typename Kernel::StrideB{}, n, k, l)},
        {{static_cast<float>(alpha), static_cast<float>(beta)},
         c,
         stride(typename Kernel::StrideC{}, m, n, l),
         d,
         stride(typename Kernel::StrideD{}, m, n, l)},
        device};
    Gemm gemm;
    void* workspace = nullptr;
    if (size_t bytes = Gemm::get_workspace_size(arguments)) cudaMalloc(&workspace, bytes);
    cutlass::Status status = gemm.can_implement(arguments);
    if (status == cutlass::Status::kSuccess) status = gemm.initialize(arguments, workspace);
    if (status == cutlass::Status::kSuccess) status = gemm.run();
    if (workspace) cudaFree(workspace);
    return static_cast<int>(status);
}

// CUTLASS's sparse GEMM by its own host code, with the metadata that its own compressor writes: KIND picks the types.
#include "cutlass/cutlass.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/transform/device/transform_universal_adapter.hpp"
#include "cutlass/transform/kernel/sparse_gemm_compressor.hpp"
#include "cutlass/util/packed_stride.hpp"

using namespace cute;
namespace gemms = cutlass::gemm;
namespace epilogues = cutlass::epilogue;

#if KIND == 0
using Element = cutlass::half_t;
#else
using Element = cutlass::float_e4m3_t;
#endif
using Sum = float;
using Row = cutlass::layout::RowMajor;
using Column = cutlass::layout::ColumnMajor;
using CtaTile = Shape<_128, _64, Int<256 / sizeof(Element)>>;
using Cluster = Shape<_1, _2, _1>;
using Extents = Shape<int, int, int, int>;
constexpr int vector = 16 / sizeof(Element);
using Last = typename epilogues::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassSparseTensorOp, CtaTile, Cluster, epilogues::collective::EpilogueTileAuto,
    Sum, Sum, Sum, Column, 4, Sum, Column, 4, epilogues::collective::EpilogueScheduleAuto>::CollectiveOp;
using Main = typename gemms::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassSparseTensorOp, Element, Row, vector, Element, Column, vector, Sum, CtaTile,
    Cluster, gemms::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Last::SharedStorage))>,
    gemms::collective::KernelScheduleAuto>::CollectiveOp;
using Kernel = gemms::kernel::GemmUniversal<Extents, Main, Last>;
using Gemm = gemms::device::GemmUniversalAdapter<Kernel>;
using Config = typename Main::SparseConfig;
using Sizes = cutlass::transform::kernel::StructuredSparseCompressorUtility<Extents, Element, Row, Config>;
using Compressor = cutlass::transform::device::TransformUniversalAdapter<
    cutlass::transform::kernel::StructuredSparseCompressor<Extents, Element, Row, Config, cutlass::arch::Sm90>>;

template <class Operation, class Arguments>
int run(Arguments const& arguments) {
    Operation operation;
    void* workspace = nullptr;
    if (size_t bytes = Operation::get_workspace_size(arguments)) cudaMalloc(&workspace, bytes);
    cutlass::Status status = operation.can_implement(arguments);
    if (status == cutlass::Status::kSuccess) status = operation.initialize(arguments, workspace);
    if (status == cutlass::Status::kSuccess) status = operation.run();
    if (workspace) cudaFree(workspace);
    return static_cast<int>(status);
}

extern "C" int sparse_gemm(int m, int n, int k, void* a, void* b, void* d) {
    Extents extents{m, n, k, 1};
    auto stride_a = cutlass::make_cute_packed_stride(gemms::TagToStrideA_t<Row>{}, {m, k, 1});
    Sizes sizes(extents, stride_a);
    void *kept, *metadata;
    cudaMalloc(&kept, sizeof(Element) * m * sizes.get_tensorA_k_physical());
    cudaMalloc(&metadata, sizes.get_metadata_m_physical() * sizes.get_metadata_k_physical());
    cutlass::KernelHardwareInfo device;
    device.sm_count = 8;
    typename Compressor::Arguments compression{extents, {a, stride_a, kept, metadata}, {device}};
    if (int status = run<Compressor>(compression)) return 100 + status;
    auto stride_d = cutlass::make_cute_packed_stride(typename Kernel::StrideD{}, {m, n, 1});
    typename Gemm::Arguments arguments{
        gemms::GemmUniversalMode::kGemm,
        extents,
        {static_cast<typename Main::ArrayElementA*>(kept), Config::fill_layoutA(extents),
         static_cast<typename Main::ArrayElementB*>(b),
         cutlass::make_cute_packed_stride(typename Kernel::StrideB{}, {n, k, 1}),
         static_cast<typename Main::ElementE*>(metadata), Config::fill_layoutE(extents)},
        {{Sum(1), Sum(0)}, static_cast<Sum*>(d), stride_d, static_cast<Sum*>(d), stride_d},
        device};
    int status = run<Gemm>(arguments);
    cudaFree(kept);
    cudaFree(metadata);
    return status;
}

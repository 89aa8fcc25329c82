// CUTLASS's collectives for sm_100a by its own host code: KIND picks the types, the pair of CTAs and the scheduler.
#include "cutlass/cutlass.h"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/gemm/kernel/tile_scheduler.hpp"
#include "cutlass/util/packed_stride.hpp"

using namespace cute;
namespace gemms = cutlass::gemm;
namespace epilogues = cutlass::epilogue;

template <class Class, class Element, int aligned, class Out, class Tile, class Cluster, class Scheduler>
struct Make {
    using Column = cutlass::layout::ColumnMajor;
    using Row = cutlass::layout::RowMajor;
    static constexpr int vector = 128 / cutlass::sizeof_bits<Out>::value;
    using Last = typename epilogues::collective::CollectiveBuilder<
        cutlass::arch::Sm100, Class, Tile, Cluster, epilogues::collective::EpilogueTileAuto, float, float, Out, Row,
        vector, Out, Row, vector, epilogues::collective::EpilogueScheduleAuto>::CollectiveOp;
    using Main = typename gemms::collective::CollectiveBuilder<
        cutlass::arch::Sm100, Class, Element, Row, aligned, Element, Column, aligned, float, Tile, Cluster,
        gemms::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Last::SharedStorage))>,
        gemms::collective::KernelScheduleAuto>::CollectiveOp;
    using Kernel = gemms::kernel::GemmUniversal<Shape<int, int, int, int>, Main, Last, Scheduler>;
    using Gemm = gemms::device::GemmUniversalAdapter<Kernel>;
};

#if KIND == 0
using Made = Make<cutlass::arch::OpClassTensorOp, cutlass::half_t, 8, float, Shape<_128, _128, _64>,
                  Shape<_1, _1, _1>, void>;
#elif KIND == 1
using Made = Make<cutlass::arch::OpClassTensorOp, cutlass::half_t, 8, float, Shape<_256, _128, _64>,
                  Shape<_2, _2, _1>, void>;
#elif KIND == 2
using Made = Make<cutlass::arch::OpClassTensorOp, cutlass::float_e4m3_t, 16, float, Shape<_128, _128, _128>,
                  Shape<_1, _1, _1>, gemms::StreamKScheduler>;
#elif KIND == 3
using Made = Make<cutlass::arch::OpClassBlockScaledTensorOp, cutlass::nv_float4_t<cutlass::float_e2m1_t>, 32,
                  cutlass::bfloat16_t, Shape<_128, _128, _256>, Shape<_1, _1, _1>, void>;
#else
using Made = Make<cutlass::arch::OpClassBlockScaledTensorOp, cutlass::mx_float8_t<cutlass::float_e4m3_t>, 16,
                  cutlass::bfloat16_t, Shape<_256, _128, _128>, Shape<_2, _1, _1>, void>;
#endif

template <class Gemm, bool scaled>
struct Operands {
    using Main = typename Gemm::GemmKernel::CollectiveMainloop;
    template <class A, class B>
    static typename Main::Arguments of(void* a, A da, void* b, B db, void*, void*, int, int, int, int) {
        using Element = typename Gemm::ElementA;
        return {static_cast<Element*>(a), da, static_cast<Element*>(b), db};
    }
};

template <class Gemm>
struct Operands<Gemm, true> {
    using Main = typename Gemm::GemmKernel::CollectiveMainloop;
    template <class A, class B>
    static typename Main::Arguments of(void* a, A da, void* b, B db, void* sa, void* sb, int m, int n, int k, int l) {
        using Config = typename Main::Sm1xxBlkScaledConfig;
        using Element = typename Main::ArrayElementA;
        using Scale = typename Main::ElementSF;
        auto shape = cute::make_shape(m, n, k, l);
        return {static_cast<Element*>(a), da, static_cast<Element*>(b), db,
                static_cast<Scale*>(sa), Config::tile_atom_to_shape_SFA(shape),
                static_cast<Scale*>(sb), Config::tile_atom_to_shape_SFB(shape)};
    }
};

extern "C" int gemm(int m, int n, int k, int l, void* a, void* b, void* sa, void* sb, void* c, void* d, double alpha,
                    double beta) {
    using Gemm = Made::Gemm;
    using Kernel = Gemm::GemmKernel;
    using Out = typename Gemm::ElementD;
    auto stride = [](auto s, int rows, int columns, int batch) {
        return cutlass::make_cute_packed_stride(s, {rows, columns, batch});
    };
    cutlass::KernelHardwareInfo device;
    device.sm_count = 8;
    typename Gemm::Arguments arguments{
        gemms::GemmUniversalMode::kGemm,
        {m, n, k, l},
        Operands<Gemm, (KIND > 2)>::of(a, stride(typename Kernel::StrideA{}, m, k, l), b,
                                      stride(typename Kernel::StrideB{}, n, k, l), sa, sb, m, n, k, l),
        {{static_cast<float>(alpha), static_cast<float>(beta)},
         static_cast<Out*>(c),
         stride(typename Kernel::StrideC{}, m, n, l),
         static_cast<Out*>(d),
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

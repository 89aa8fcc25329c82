// CUTLASS's implicit GEMM convolution of 2 dimensions by its own host code: the image comes by TMA in im2col mode.
#include "cutlass/cutlass.h"
// What the headers of convolutions need and do not include.
#include "cute/tensor.hpp"
#include "cute/atom/copy_traits_sm90_im2col.hpp"
#include "cutlass/kernel_hardware_info.hpp"
// In this order.
#include "cutlass/conv/convnd_problem_shape.hpp"
#include "cutlass/conv/device/conv_universal_adapter.hpp"
#include "cutlass/conv/kernel/conv_universal.hpp"
#include "cutlass/conv/collective/collective_builder.hpp"
#include "cutlass/epilogue/collective/collective_builder.hpp"

using namespace cute;
namespace convs = cutlass::conv;
namespace epilogues = cutlass::epilogue;

using Element = cutlass::half_t;
using Images = cutlass::layout::TensorNHWC;
using CtaTile = Shape<_64, _64, Shape<_64>>;
using Cluster = Shape<_1, _1, _1>;
using Last = typename epilogues::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, CtaTile, Cluster, epilogues::collective::EpilogueTileAuto, float,
    float, float, Images, 4, float, Images, 4, epilogues::TmaWarpSpecialized>::CollectiveOp;
using Main = typename convs::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, convs::Operator::kFprop, Element, Images, 8, Element, Images, 8, float,
    CtaTile, Cluster, convs::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Last::SharedStorage))>,
    convs::collective::KernelScheduleAuto>::CollectiveOp;
using Problem = convs::ConvProblemShape<Main::DispatchPolicy::ConvOp, Main::DispatchPolicy::NumSpatialDimensions>;
using Kernel = convs::kernel::ConvUniversal<Problem, Main, Last>;
using Conv = convs::device::ConvUniversalAdapter<Kernel>;

// n, h, w, c of the image; k, r, s of the filter; padding, stride and dilation of h and w.
extern "C" int convolve(int n, int h, int w, int c, int k, int r, int s, int pad_h, int pad_w, int stride_h,
                        int stride_w, int dilation_h, int dilation_w, void* a, void* b, float* d) {
    Problem problem(convs::Mode::kCrossCorrelation, {n, h, w, c}, {k, r, s, c}, {pad_h, pad_w}, {pad_h, pad_w},
                    {stride_h, stride_w}, {dilation_h, dilation_w}, 1);
    typename Kernel::StrideC stride_c{};
    typename Kernel::StrideD stride_d{};
    for_each(make_seq<rank<0>(typename Kernel::StrideD{})>{}, [&](auto i) {
        get<0, i>(stride_c) = problem.stride_C[rank<0>(typename Kernel::StrideD{}) - 1 - i];
        get<0, i>(stride_d) = problem.stride_C[rank<0>(typename Kernel::StrideD{}) - 1 - i];
    });
    cutlass::KernelHardwareInfo device;
    device.sm_count = 8;
    typename Conv::Arguments arguments{
        problem, {static_cast<Element*>(a), static_cast<Element*>(b)}, {{}, d, stride_c, d, stride_d}, device};
    arguments.epilogue.thread.alpha = 1.0f;
    arguments.epilogue.thread.beta = 0.0f;
    Conv conv;
    void* workspace = nullptr;
    if (size_t bytes = Conv::get_workspace_size(arguments)) cudaMalloc(&workspace, bytes);
    cutlass::Status status = conv.can_implement(arguments);
    if (status == cutlass::Status::kSuccess) status = conv.initialize(arguments, workspace);
    if (status == cutlass::Status::kSuccess) status = conv.run();
    if (workspace) cudaFree(workspace);
    return static_cast<int>(status);
}

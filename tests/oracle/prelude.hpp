// Everything the generated oracle programs share: CuTe's headers and a printer for the notation of tests/golden.
#pragma once
#define CUTE_CVTA_GENERIC_TO_SHARED_ACTIVATED 1
#include <cstddef>
#include <cstdint>
#include <cstdio>
// make_gmma_desc asks the hardware for a shared-memory address; on the host the pointer's value stands in for it.
static inline std::size_t __cvta_generic_to_shared(void const* ptr) { return reinterpret_cast<std::size_t>(ptr); }
#include <cute/tensor.hpp>
#include <cute/atom/mma_atom.hpp>
#include <cute/atom/mma_traits_sm90_gmma.hpp>
#include <cute/atom/copy_atom.hpp>
#include <cute/util/print_latex.hpp>

namespace oracle {
using namespace cute;

template <class T> struct is_plain_layout : false_type {};
template <class S, class D> struct is_plain_layout<Layout<S, D>> : true_type {};
template <class T> struct is_flag : false_type {};
template <int Bits> struct is_flag<smem_ptr_flag_bits<Bits>> : true_type { static constexpr int bits = Bits; };
template <class T> struct is_swizzle : false_type {};
template <int B, int M, int S> struct is_swizzle<Swizzle<B, M, S>> : true_type {};
template <class T> struct is_scaled_basis : false_type {};
template <class T, int... Ns> struct is_scaled_basis<ScaledBasis<T, Ns...>> : true_type {};

// A tuple that holds a layout or an underscore anywhere is a tiler and is written <...>.
template <class T> constexpr bool is_tiler() {
  if constexpr (is_plain_layout<T>::value || is_composed_layout<T>::value || is_swizzle<T>::value
                || is_same<T, Underscore>::value) { return true; }
  else { return false; }
}
template <class... Ts> constexpr bool any_tiler(cute::tuple<Ts...> const&);
template <class T> constexpr bool holds_tiler() {
  if constexpr (is_tiler<T>()) { return true; }
  else if constexpr (is_scaled_basis<T>::value) { return false; }
  else if constexpr (is_tuple<T>::value) { return any_tiler(T{}); }
  else { return false; }
}
template <class... Ts> constexpr bool any_tiler(cute::tuple<Ts...> const&) { return (false || ... || holds_tiler<Ts>()); }

template <class T, int... Ns> void show_basis(ScaledBasis<T, Ns...> const& e);

template <class T> void show(T const& t) {
  if constexpr (is_flag<T>::value) { printf("smem_ptr[%db](unset)", is_flag<T>::bits); }
  else if constexpr (is_same<T, Underscore>::value) { printf("_"); }
  else if constexpr (is_swizzle<T>::value) { printf("Sw<%d,%d,%d>", T::num_bits, T::num_base, T::num_shft); }
  else if constexpr (is_scaled_basis<T>::value) { show_basis(t); }
  else if constexpr (is_plain_layout<T>::value) { show(t.shape()); printf(":"); show(t.stride()); }
  else if constexpr (is_composed_layout<T>::value) {
    using A = remove_cvref_t<decltype(t.layout_a())>;
    if constexpr (is_composed_layout<A>::value) { printf("("); show(t.layout_a()); printf(")"); }
    else { show(t.layout_a()); }
    printf(" o "); show(t.offset()); printf(" o "); show(t.layout_b());
  }
  else if constexpr (is_tuple<T>::value) {
    constexpr bool tiler = holds_tiler<T>();
    printf(tiler ? "<" : "(");
    bool first = true;
    for_each(t, [&](auto const& e) { if (!first) { printf(","); } first = false; show(e); });
    printf(tiler ? ">" : ")");
  }
  else { printf("%lld", static_cast<long long>(t)); }
}

template <class T, int... Ns> void show_basis(ScaledBasis<T, Ns...> const& e) {
  show(e.value());
  constexpr int path[] = {Ns..., 0};
  for (int i = int(sizeof...(Ns)) - 1; i >= 0; --i) { printf("@%d", path[i]); }
}

// JSON: integers and booleans bare, everything else a string.
template <class T> struct is_static_bool : false_type {};
template <> struct is_static_bool<C<true>> : true_type {};
template <> struct is_static_bool<C<false>> : true_type {};
template <bool v> struct is_static_bool<integral_constant<bool, v>> : true_type {};
template <class T> void json(T const& t) {
  if constexpr (is_same<T, bool>::value || is_static_bool<T>::value) { printf(bool(t) ? "true" : "false"); }
  else if constexpr (cute::is_integral<T>::value && !is_flag<T>::value) { printf("%lld", static_cast<long long>(t)); }
  else { printf("\""); show(t); printf("\""); }
}

template <class T> void emit(int index, T const& t) { printf("%d\t", index); json(t); printf("\n"); }

// The spelling of a type whose value is static, for the reader to turn into text: cheaper to compile than show().
template <class T> char const* spelled() { return __PRETTY_FUNCTION__; }
template <class T> void emit_type(char const* before, T const&, char const* after) {
  static_assert(is_static<T>::value, "only static values can be read from their type");
  printf("%s{\"type\":\"%s\"}%s", before, spelled<T>(), after);
}

// Values at 0, 1, ...: of a layout over its whole domain, of a swizzle over the given range.
template <class F> void emit_values(int index, F const& f, int n) {
  printf("%d\t[", index);
  for (int i = 0; i < n; ++i) { printf("%s%lld", i ? "," : "", static_cast<long long>(f(i))); }
  printf("]\n");
}

template <class A, class O, class B> constexpr auto composed(A const& a, O const& o, B const& b) {
  return ComposedLayout<A, O, B>{a, o, b};
}

// Shared-memory operand tiles and the descriptors CuTe makes for them.
template <class T, class Layout, class MN, class K>
constexpr auto tiled_operand(Layout const& layout, MN mn, K k, std::size_t base = 0) {
  return tiled_divide(make_tensor(make_smem_ptr(reinterpret_cast<T*>(base)), layout), make_tile(mn, k));
}

template <class T, GMMA::Major major, class Layout, class MN, class K>
void emit_iterator(int index, Layout const& layout, MN mn, K k) {
  auto tensor = make_tensor<GMMA::smem_desc<major>>(tiled_operand<T>(layout, mn, k));
  printf("%d\t", index);
  emit_type("", tensor.layout(), "\n");
}

template <class T, GMMA::Major major, class Layout, class MN, class K>
void emit_descriptor(int index, Layout const& layout, MN mn, K k, int mn_block, int k_block, int stage, std::size_t base) {
  auto tiles = tiled_operand<T>(layout, mn, k, base);
  auto descs = make_tensor<GMMA::smem_desc<major>>(tiles);
  GmmaDescriptor d;
  if constexpr (decltype(rank(descs))::value == 4) { d = descs(0, mn_block, k_block, stage); }
  else { d = descs(0, mn_block, k_block); }
  auto tile = tensor<0>(tiles);
  auto units = recast<uint128_t const>(tile);
  printf("%d\t{\"desc\":\"0x%016llx\",\"start_address_\":%d,\"leading_byte_offset_\":%d,\"stride_byte_offset_\":%d,"
         "\"base_offset_\":%d,\"layout_type_\":%d,", index, static_cast<unsigned long long>(d.desc_),
         int(d.bitfield.start_address_), int(d.bitfield.leading_byte_offset_), int(d.bitfield.stride_byte_offset_),
         int(d.bitfield.base_offset_), int(d.bitfield.layout_type_));
  emit_type("\"tile\":", tile.layout(), ",");
  emit_type("\"u128\":", units.layout(), "}\n");
}

template <class Op> void emit_traits(int index) {
  using Traits = MMA_Traits<Op>;
  printf("%d\t", index);
  emit_type("{\"Shape_MNK\":", typename Traits::Shape_MNK{}, ",");
  emit_type("\"ThrID\":", typename Traits::ThrID{}, ",");
  emit_type("\"ALayout\":", typename Traits::ALayout{}, ",");
  emit_type("\"BLayout\":", typename Traits::BLayout{}, ",");
  emit_type("\"CLayout\":", typename Traits::CLayout{}, "}\n");
}

// Blackwell: descriptors with the address of every 16-byte unit of the tile, traits of copies and MMAs.
template <class T, UMMA::Major major, class Layout, class MN, class K>
void emit_umma_descriptor(int index, Layout const& layout, MN mn, K k, int mn_block, int k_block, std::size_t base) {
  auto tiles = tiled_operand<T>(layout, mn, k, base);
  auto descs = make_tensor<UMMA::smem_desc<major>>(tiles);
  UMMA::SmemDescriptor d = descs(0, mn_block, k_block);
  auto tile = tiles(make_coord(_, _), mn_block, k_block);
  constexpr int per = 128 / sizeof_bits_v<T>;
  printf("%d\t{\"desc\":\"0x%016llx\",\"units\":[", index, static_cast<unsigned long long>(d.desc_));
  bool first = true;
  for (int i = 0; i < size(mn); i += (major == UMMA::Major::K ? 1 : per)) {
    for (int j = 0; j < size(k); j += (major == UMMA::Major::K ? per : 1)) {
      printf(first ? "%zu" : ",%zu", std::size_t(reinterpret_cast<char*>(&tile(i, j)) - static_cast<char*>(nullptr)));
      first = false;
    }
  }
  printf("],");
  emit_type("\"tile\":", tensor<0>(tiles).layout(), "}\n");
}

template <class Op> void emit_copy_traits(int index) {
  using Traits = Copy_Traits<Op>;
  printf("%d\t", index);
  emit_type("{\"ThrID\":", typename Traits::ThrID{}, ",");
  emit_type("\"ValID\":", typename Traits::ValID{}, ",");
  emit_type("\"SrcLayout\":", typename Traits::SrcLayout{}, ",");
  emit_type("\"DstLayout\":", typename Traits::DstLayout{}, ",");
  emit_type("\"RefLayout\":", typename Traits::RefLayout{}, "}\n");
}

template <class Traits> void emit_umma_traits(int index) {
  printf("%d\t{\"idesc\":%u,", index, uint32_t(Traits{}.idesc_));
  emit_type("\"Shape_MNK\":", typename Traits::Shape_MNK{}, ",");
  emit_type("\"ThrID\":", typename Traits::ThrID{}, ",");
  emit_type("\"ALayout\":", typename Traits::ALayout{}, ",");
  emit_type("\"BLayout\":", typename Traits::BLayout{}, ",");
  emit_type("\"CLayout\":", typename Traits::CLayout{}, "}\n");
}

template <class Part> void emit_partition(int index, Part const& part, int const* base) {
  printf("%d\t", index);
  emit_type("{\"layout\":", part.layout(), ",");
  printf("\"offset\":%lld}\n", static_cast<long long>(&*part.data() - base));
}

inline int const* origin() { static int here; return &here; }
}  // namespace oracle
using namespace oracle;

/*
 * nvcuda::wmma for tests/cuda_emulation: tiles of matrices that the lanes of a warp hold together.
 *
 * Which lane holds which element is unspecified in CUDA; here it is a permutation that no device
 * has, other for a, b and sums, so that nothing can depend on it. Products are added to the sums,
 * which are floats, in order of k. TF32 operands lose their low 13 bits, as on a device.
 *
 * Checked: alignment of addresses (32 bytes) and of leading dimensions (16 bytes), that all lanes
 * of the warp call mma_sync together. Failures: ul_emulate_fail.
 */
#ifndef CUDA_MMA_H
#define CUDA_MMA_H

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_runtime.h"
#include "ul_emulate.h"

namespace nvcuda
{
namespace wmma
{

struct row_major {
};
struct col_major {
};
struct matrix_a {
};
struct matrix_b {
};
struct accumulator {
};

namespace precision
{
struct tf32 {
};
} // namespace precision

enum layout_t { mem_row_major, mem_col_major };

template <class T> struct ul_storage {
    typedef T type;
};

template <> struct ul_storage<precision::tf32> {
    typedef float type;
};

/* Rows, columns and the multiplier of the permutation of a tile's elements. */
template <class USE, int M, int N, int K> struct ul_tile_of;

template <int M, int N, int K> struct ul_tile_of<matrix_a, M, N, K> {
    static constexpr int rows = M, columns = K, factor = 37, shift = 11;
};

template <int M, int N, int K> struct ul_tile_of<matrix_b, M, N, K> {
    static constexpr int rows = K, columns = N, factor = 77, shift = 5;
};

template <int M, int N, int K> struct ul_tile_of<accumulator, M, N, K> {
    static constexpr int rows = M, columns = N, factor = 101, shift = 19;
};

/* The shapes that devices have. */
template <int M, int N, int K, class T> constexpr bool ul_has_shape()
{
    return false;
}
#define UL_EMULATE_SHAPES(type)                                                                    \
    template <> constexpr bool ul_has_shape<16, 16, 16, type>()                                    \
    {                                                                                              \
        return true;                                                                               \
    }                                                                                              \
    template <> constexpr bool ul_has_shape<32, 8, 16, type>()                                     \
    {                                                                                              \
        return true;                                                                               \
    }                                                                                              \
    template <> constexpr bool ul_has_shape<8, 32, 16, type>()                                     \
    {                                                                                              \
        return true;                                                                               \
    }
UL_EMULATE_SHAPES(__half)
UL_EMULATE_SHAPES(__nv_bfloat16)
UL_EMULATE_SHAPES(float)
template <> constexpr bool ul_has_shape<16, 16, 8, float>()
{
    return true;
}
template <> constexpr bool ul_has_shape<16, 16, 8, precision::tf32>()
{
    return true;
}

template <class USE, int M, int N, int K, class T, class LAYOUT = void> struct fragment {
    typedef typename ul_storage<T>::type element_type;
    typedef ul_tile_of<USE, M, N, K> tile;
    static_assert(ul_has_shape<M, N, K, T>(), "no device has tiles of this shape and type");
    static constexpr int count = tile::rows * tile::columns;
    static constexpr int num_elements = count / 32;
    element_type x[num_elements];

    /* The element in the tile, counted by rows, that is number i of a lane. */
    static int at(int lane, int i)
    {
        return ((i * 32 + lane) * tile::factor + tile::shift) % count;
    }
};

static inline void ul_check_tile(const void *at, unsigned pitch, size_t element_bytes,
                                 const char *what)
{
    if ((uintptr_t)at % 32 != 0)
        ul_emulate_fail("%s: the address %p is not a multiple of 32 bytes", what, at);
    if (pitch * element_bytes % 16 != 0)
        ul_emulate_fail("%s: a leading dimension of %u is not a multiple of 16 bytes", what, pitch);
}

template <class F, class T> static inline void fill_fragment(F &fragment, const T &value)
{
    for (int i = 0; i < F::num_elements; i++)
        fragment.x[i] = (typename F::element_type)value;
}

template <class F, class T>
static inline void ul_load(F &fragment, const T *from, unsigned pitch, bool by_rows)
{
    ul_check_tile(from, pitch, sizeof(T), "load_matrix_sync");
    for (int i = 0; i < F::num_elements; i++) {
        const int at = F::at(ul_emulate_lane(), i);
        const unsigned row = (unsigned)(at / F::tile::columns), column = at % F::tile::columns;
        fragment.x[i] = from[by_rows ? row * pitch + column : column * pitch + row];
    }
}

template <class USE, int M, int N, int K, class T, class E>
static inline void load_matrix_sync(fragment<USE, M, N, K, T, row_major> &to, const E *from,
                                    unsigned pitch)
{
    ul_load(to, from, pitch, true);
}

template <class USE, int M, int N, int K, class T, class E>
static inline void load_matrix_sync(fragment<USE, M, N, K, T, col_major> &to, const E *from,
                                    unsigned pitch)
{
    ul_load(to, from, pitch, false);
}

template <int M, int N, int K, class T>
static inline void load_matrix_sync(fragment<accumulator, M, N, K, T> &to, const T *from,
                                    unsigned pitch, layout_t layout)
{
    ul_load(to, from, pitch, layout == mem_row_major);
}

template <int M, int N, int K, class T>
static inline void store_matrix_sync(T *to, const fragment<accumulator, M, N, K, T> &from,
                                     unsigned pitch, layout_t layout)
{
    typedef fragment<accumulator, M, N, K, T> F;
    ul_check_tile(to, pitch, sizeof(T), "store_matrix_sync");
    for (int i = 0; i < F::num_elements; i++) {
        const int at = F::at(ul_emulate_lane(), i);
        const unsigned row = (unsigned)(at / N), column = at % N;
        to[layout == mem_row_major ? row * pitch + column : column * pitch + row] = from.x[i];
    }
}

/* Round to nearest, ties away from zero. */
static inline float __float_to_tf32(float x)
{
    unsigned bits = __float_as_uint(x);
    if ((bits & 0x7f800000u) != 0x7f800000u)
        bits += 0x1000u;
    return __uint_as_float(bits & ~0x1fffu);
}

template <class T> static inline float ul_operand(typename ul_storage<T>::type x)
{
    if constexpr (__is_same(T, precision::tf32))
        return __uint_as_float(__float_as_uint(x) & ~0x1fffu);
    else
        return (float)x;
}

/* What a lane brings to a product. */
template <class D, class A, class B, class C> struct ul_product {
    D *d;
    const A *a;
    const B *b;
    const C *c;
};

/* By the last lane, for all. */
template <class TA, class TB, class D, class A, class B, class C>
__attribute__((no_sanitize("thread"))) void ul_multiply(unsigned, void *const *given)
{
    typedef ul_product<D, A, B, C> product;
    constexpr int M = A::tile::rows, K = A::tile::columns, N = B::tile::columns;
    float a[M * K], b[K * N], sums[M * N];
    for (int lane = 0; lane < 32; lane++) {
        const product *all = (const product *)given[lane];
        for (int i = 0; i < A::num_elements; i++)
            a[A::at(lane, i)] = ul_operand<TA>(all->a->x[i]);
        for (int i = 0; i < B::num_elements; i++)
            b[B::at(lane, i)] = ul_operand<TB>(all->b->x[i]);
        for (int i = 0; i < C::num_elements; i++)
            sums[C::at(lane, i)] = (float)all->c->x[i];
    }
    for (int m = 0; m < M; m++)
        for (int k = 0; k < K; k++)
            for (int n = 0; n < N; n++)
                sums[m * N + n] += a[m * K + k] * b[k * N + n];
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < D::num_elements; i++)
            ((const product *)given[lane])->d->x[i] =
                (typename D::element_type)sums[D::at(lane, i)];
}

template <int M, int N, int K, class T, class LA, class LB, class TD, class TC>
static inline void
mma_sync(fragment<accumulator, M, N, K, TD> &d, const fragment<matrix_a, M, N, K, T, LA> &a,
         const fragment<matrix_b, M, N, K, T, LB> &b, const fragment<accumulator, M, N, K, TC> &c,
         int line = __builtin_LINE())
{
    typedef fragment<accumulator, M, N, K, TD> D;
    typedef fragment<matrix_a, M, N, K, T, LA> A;
    typedef fragment<matrix_b, M, N, K, T, LB> B;
    typedef fragment<accumulator, M, N, K, TC> C;
    ul_product<D, A, B, C> mine = {&d, &a, &b, &c};
    ul_emulate_meet(0xffffffffu, &mine, ul_multiply<T, T, D, A, B, C>, true, "mma_sync", line);
}

} // namespace wmma
} // namespace nvcuda

#endif

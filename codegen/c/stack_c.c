/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds the stack that the function of a kernel takes, with all that it calls.
 *
 * Problem: the C compiler makes frames, and it has not run yet. Method: the printed text shows
 * local arrays and names; the rest is bounded by what compilers do. A loop of few rounds is
 * unrolled completely, and the loop around it fills vectors: then everything that a round names,
 * loads or stores may be a vector that is spilt.
 *
 *     for (v1 ...)                  lanes of a vector
 *         for (v2 = 0 .. 8)         8 rounds, unrolled
 *             v3 = v3 + b0[...]     of each, 2 vectors
 *
 * The constants are above what gcc 12 takes for the kernels of tests/e2e/stack.py, from -Os to -O3
 * and up to vectors of 64 bytes; without vectors frames are a fraction of that. Left undone: a
 * bound for any compiler. */
#include "codegen/c/c.h"
#include "ir/kernel_build.h"

enum {
    FRAME_BYTES = 352, /* in any kernel: saved registers, arguments, alignment */
    NAME_BYTES = 8,    /* for a variable or a buffer's address */
    CONTRACT_BYTES =
        1536, /* the runtime's tiles and sums, called or inlined, and results of dots */
    VECTOR_BYTES = 64,
    MAX_VECTORS = 50, /* a compiler that would spill more does not unroll */
    SHORT_ROUNDS = 16 /* gcc's max-completely-peel-times */
};

static uint32_t load_count(const struct ul_kernel *kernel, ul_kx id)
{
    const struct ul_kx_data *expr = &kernel->exprs[id];
    const ul_kx operands[3] = {expr->a, expr->b, expr->c};
    uint32_t count = expr->op == UL_KX_LOAD;
    for (uint32_t i = 0; i < ul_kx_operand_count(expr->op) && count < MAX_VECTORS; i++)
        count += load_count(kernel, operands[i]);
    return count;
}

static uint32_t at_most(uint32_t count)
{
    return count < MAX_VECTORS ? count : MAX_VECTORS;
}

/* The rounds of a loop that is unrolled, or 1. */
static uint32_t short_rounds(const struct ul_kernel *kernel, const struct ul_ks_data *loop,
                             uint32_t depth)
{
    int64_t count;
    bool is_short = depth > 0 && ul_kx_is_int(kernel, loop->value, &count) && count > 1 &&
                    count <= SHORT_ROUNDS;
    return is_short ? (uint32_t)count : 1;
}

static bool holds_contraction(const struct ul_kernel *kernel, ul_ks first)
{
    for (ul_ks id = first; id != UL_NONE; id = kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &kernel->stmts[id];
        if (stmt->kind == UL_KS_CONTRACT || holds_contraction(kernel, stmt->body) ||
            holds_contraction(kernel, stmt->orelse))
            return true;
    }
    return false;
}

/* The vectors that may be spilt in a list of statements, inside that many loops that may fill
 * them. */
static uint32_t vector_count(const struct ul_kernel *kernel, ul_ks first, uint32_t depth,
                             bool in_short)
{
    uint32_t count = 0;
    for (ul_ks id = first; id != UL_NONE; id = kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &kernel->stmts[id];
        if (stmt->kind == UL_KS_FOR) {
            uint32_t rounds = short_rounds(kernel, stmt, depth);
            uint32_t inside = holds_contraction(kernel, stmt->body) ? 0 : depth + 1;
            count += rounds * vector_count(kernel, stmt->body, inside, in_short || rounds > 1);
        } else if (stmt->kind == UL_KS_IF) {
            count += vector_count(kernel, stmt->body, depth, in_short) +
                     vector_count(kernel, stmt->orelse, depth, in_short);
        } else if (stmt->kind != UL_KS_CONTRACT && stmt->kind != UL_KS_BREAK && in_short) {
            count += 1 + load_count(kernel, stmt->value);
        }
        count = at_most(count);
    }
    return count;
}

uint64_t ul_kernel_stack_c(const struct ul_kernel *kernel)
{
    uint64_t arrays = 0;
    uint64_t names = (uint64_t)NAME_BYTES * (kernel->var_count + kernel->buffer_count);
    uint64_t aside = (uint64_t)VECTOR_BYTES * vector_count(kernel, kernel->first, 0, false);
    for (uint32_t i = 0; i < kernel->buffer_count; i++) {
        const struct ul_buffer *buffer = &kernel->buffers[i];
        uint32_t element_bytes = ul_dtype_get(buffer->dtype)->size_bytes;
        if (buffer->role == UL_BUFFER_LOCAL)
            arrays += ul_size_align_or_die(ul_size_mul_or_die(buffer->element_count, element_bytes),
                                           VECTOR_BYTES);
    }
    if (kernel->contraction_count > 0 && aside < CONTRACT_BYTES)
        aside = CONTRACT_BYTES;
    return FRAME_BYTES + arrays + (names > aside ? names : aside);
}

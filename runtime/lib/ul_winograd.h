/* SPDX-License-Identifier: 0BSD */
/*
 * Convolution by Winograd's minimal filtering F(2x2, 3x3): windows of 3x3 that move by 1, f32,
 * channels innermost. A tile of 2x2 results takes 16 products for each pair of channels where the
 * plain sum takes 36.
 *
 *      set-up      U = G g G^T for the 3x3 weights g of every pair of channels (struct ul_pack with
 *                  `winograd` set): 16 matrices of C x K
 *      run         for a block of tiles:
 *                      V = B^T d B     4x4 pixels d of the source, every channel
 *                      M[p] = V[p] U[p]        16 products of matrices, tiles x C by C x K
 *                      dst = posts(A^T M A + bias)
 *
 * Source: A. Lavin, S. Gray, "Fast Algorithms for Convolutional Neural Networks", 2015, section 4.1
 * (the matrices B, G, A).
 * Numerics: its transforms add and halve only, so that the error stays within a few times that of
 * the plain sum, against the largest element of the tile's patch over all channels. Differences of
 * pixels are shared by a tile: one infinity or NaN in the patch makes NaN of results that the plain
 * sum would make infinite, or does not read it for; no cut of the method avoids that. Where it
 * matters, --conv direct does without the method.
 *
 * Layout of U: panels of panel_cols outputs; in each the 16 matrices one after the other, row by
 * row: [panel][16][C][panel_cols]. The columns past the last output are zero. Threads: many tiles
 * are shared out in blocks, each with a V of its own; for few tiles V is made once by all threads,
 * which then share out panels. Every sum is one accumulator in the order of the channels, so that
 * the bits do not depend on the cut, nor on threads. A piece of a larger call has its bits where
 * its tiles are those of the larger one: the first may begin a row or column before it
 * (tile_begin), the last may end after it; those of a tile's results that are in the piece read no
 * pixel that is not there.
 *
 * Units: strides in elements (floats), sizes in bytes. Ownership: all memory is the caller's.
 * Nothing fails. Pure C99; needs no library.
 */
#ifndef UL_WINOGRAD_H
#define UL_WINOGRAD_H

#include "ul_call.h"

enum {
    UL_WINOGRAD_POINTS = 16, /* products of a tile: the 4x4 patch of the source */
    UL_WINOGRAD_LANES = 16,  /* panel_cols are a multiple, on every machine */
    UL_WINOGRAD_COLS = 64    /* panel_cols at most */
};

/* How a call is cut: from its description and the planned number of threads alone, so that compiler
 * and runtime agree. */
struct ul_winograd {
    int64_t channels, outputs;                /* C, K */
    int64_t tile_rows, tile_cols, tile_count; /* per image, per image, of all images */
    int64_t panel_cols, panel_count;
    int64_t block_tiles, block_count;
    int shared;             /* one V for all tiles; else one of block_tiles for each thread */
    int64_t row, plane;     /* of V: between tiles, between points */
    int64_t sums_plane;     /* of M [16][block_tiles][panel_cols]: between points */
    uint64_t input_bytes;   /* of one V */
    uint64_t sums_bytes;    /* of one M: every thread has its own */
    uint64_t packed_bytes;  /* of U */
    uint64_t scratch_bytes; /* V and M of all planned threads; alignment 64 */
};

static inline int64_t ul_winograd_divide(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Whether axes longer than 1 have these strides; 0: any. */
static inline int ul_winograd_strided(const struct ul_call_tensor *tensor, const int64_t strides[4])
{
    for (uint32_t d = 0; d < 4; d++)
        if (tensor->dims[d] > 1 && strides[d] != 0 && tensor->strides[d] != strides[d])
            return 0;
    return 1;
}

/* Whether this file's method computes the call: weights [K, C, 3, 3] as they are stored. */
static inline int ul_winograd_supports(const struct ul_call *call)
{
    const int64_t channels_last[4] = {0, 1, 0, 0};
    const int64_t row_major[4] = {call->weights.dims[1] * 9, 9, 3, 1};
    for (uint32_t i = 0; i < call->post_count; i++)
        if (call->posts[i].tensor.type != UL_CALL_F32)
            return 0;
    return call->src.type == UL_CALL_F32 && call->weights.type == UL_CALL_F32 &&
           call->dst.type == UL_CALL_F32 && call->kind == UL_CALL_CONVOLUTION &&
           call->group_count <= 1 && call->src.rank == 4 && call->weights.rank == 4 &&
           call->dst.rank == 4 && call->weights.dims[2] == 3 && call->weights.dims[3] == 3 &&
           call->steps[0] == 1 && call->steps[1] == 1 && call->dilations[0] == 1 &&
           call->dilations[1] == 1 && ul_winograd_strided(&call->src, channels_last) &&
           ul_winograd_strided(&call->dst, channels_last) &&
           ul_winograd_strided(&call->weights, row_major);
}

/* Blocks of tiles. A block reads all of U, 64 C K bytes, for 32 C K multiplications and additions
 * of each tile: from 24 tiles on, memory keeps up. More tiles bring little, and are taken while V
 * and M, 64 (C + panel_cols) bytes a tile, are a small part of the second cache. */
static inline void ul_winograd_tile_blocks(struct ul_winograd *tiling, int64_t threads)
{
    enum { MIN_TILES = 24, MAX_TILES = 96, CACHE_BYTES = 256 << 10 };
    int64_t max = CACHE_BYTES / (64 * (tiling->channels + tiling->panel_cols));
    max = max < MIN_TILES ? MIN_TILES : max > MAX_TILES ? MAX_TILES : max;
    tiling->block_count = ul_winograd_divide(tiling->tile_count, max);
    tiling->shared = threads > 1 && tiling->tile_count < threads * MIN_TILES;
    if (tiling->shared) {
        int64_t wanted = ul_winograd_divide(threads, tiling->panel_count);
        tiling->block_count = tiling->block_count < wanted ? wanted : tiling->block_count;
    } else {
        tiling->block_count = ul_winograd_divide(tiling->block_count, threads) * threads;
    }
    tiling->block_tiles = ul_winograd_divide(tiling->tile_count, tiling->block_count);
    tiling->block_count = ul_winograd_divide(tiling->tile_count, tiling->block_tiles);
}

/* For a call that ul_winograd_supports, with `threads` planned threads. */
static inline void ul_winograd_tiling(struct ul_winograd *tiling, const struct ul_call *call,
                                      uint32_t threads)
{
    const int64_t lanes = UL_WINOGRAD_LANES, points = UL_WINOGRAD_POINTS;
    const int64_t thread_count = threads != 0 ? (int64_t)threads : 1;
    memset(tiling, 0, sizeof *tiling);
    tiling->channels = call->src.dims[1];
    tiling->outputs = call->dst.dims[1];
    tiling->tile_rows = (call->tile_begin[0] + call->dst.dims[2] + 1) / 2;
    tiling->tile_cols = (call->tile_begin[1] + call->dst.dims[3] + 1) / 2;
    tiling->tile_count = call->dst.dims[0] * tiling->tile_rows * tiling->tile_cols;
    int64_t lane_count = ul_winograd_divide(tiling->outputs, lanes);
    tiling->panel_count = ul_winograd_divide(tiling->outputs, UL_WINOGRAD_COLS);
    tiling->panel_cols = ul_winograd_divide(lane_count, tiling->panel_count) * lanes;
    ul_winograd_tile_blocks(tiling, thread_count);
    /* An odd number of cache lines between tiles and between points: the 16 points of a tile, and
       the tiles of a product, do not compete for the same sets of the cache. */
    int64_t held = tiling->shared ? tiling->tile_count : tiling->block_tiles;
    tiling->row = (ul_winograd_divide(tiling->channels, lanes) | 1) * lanes;
    tiling->plane = ((held * tiling->row / lanes) | 1) * lanes;
    tiling->sums_plane = ((tiling->block_tiles * tiling->panel_cols / lanes) | 1) * lanes;
    tiling->input_bytes = (uint64_t)(points * tiling->plane) * sizeof(float);
    tiling->sums_bytes = (uint64_t)(points * tiling->sums_plane) * sizeof(float);
    tiling->packed_bytes =
        (uint64_t)(tiling->panel_count * points * tiling->channels * tiling->panel_cols) *
        sizeof(float);
    tiling->scratch_bytes = (tiling->shared ? 1 : (uint64_t)thread_count) * tiling->input_bytes +
                            (uint64_t)thread_count * tiling->sums_bytes;
}

/* How U is laid out, for the loader. */
static inline void ul_winograd_pack(struct ul_pack *pack, const struct ul_winograd *tiling)
{
    memset(pack, 0, sizeof *pack);
    pack->rank = 4;
    pack->dims[0] = tiling->outputs;
    pack->dims[1] = tiling->channels;
    pack->dims[2] = pack->dims[3] = 3;
    pack->strides[1] = tiling->panel_cols;
    pack->strides[3] = pack->strides[1] * tiling->channels;
    pack->strides[2] = pack->strides[3] * 4;
    pack->strides[0] = pack->strides[2] * 4;
    pack->block_count = 1;
    pack->blocks[0] = tiling->panel_cols;
    pack->size_bytes = tiling->packed_bytes;
    pack->winograd = 1;
    pack->element_bytes = sizeof(float);
}

/* The 16 elements of U of one pair of channels, for its 9 weights. */
static inline void ul_winograd_weight(float u[16], const float g[9])
{
    double half[12]; /* G g: rows of 3; in double, so that each element is rounded once */
    for (int x = 0; x < 3; x++) {
        double a = g[x], b = g[3 + x], c = g[6 + x];
        half[x] = a;
        half[3 + x] = 0.5 * (a + b + c);
        half[6 + x] = 0.5 * (a - b + c);
        half[9 + x] = c;
    }
    for (int y = 0; y < 4; y++) {
        double a = half[3 * y], b = half[3 * y + 1], c = half[3 * y + 2];
        u[4 * y] = (float)a;
        u[4 * y + 1] = (float)(0.5 * (a + b + c));
        u[4 * y + 2] = (float)(0.5 * (a - b + c));
        u[4 * y + 3] = (float)c;
    }
}

/* ---- ul_winograd.c ---- */
/* args as of ul_library_run; scratch for planned_threads; 1 <= threads <= planned_threads. */
void ul_winograd_run(const struct ul_call *call, const void *const *args, unsigned char *scratch,
                     uint32_t planned_threads, uint32_t threads);

#endif

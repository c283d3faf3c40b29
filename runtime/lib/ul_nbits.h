/* SPDX-License-Identifier: 0BSD */
/*
 * Products with weights of a few bits: dst[m, n] = posts(sum over k of src[m, k] * w[k, n] + bias),
 * w[k, n] = (code[k, n] - zero[k / block, n]) * scale[k / block, n], computed from the codes as
 * they are packed.
 *
 * Layout of the codes: panels of 16 columns, the last one filled with zeros; in each the words of
 * 32 bits one after the other, 16 columns side by side: [panel][word][16]. A word holds 32 / bits
 * weights of its column, the first in the lowest bits. Scales are [blocks, n], in 32 or 16 bits;
 * zero points [blocks, n] as floats, or as `bits` each, a block's from a byte on. Floats of 16 bits
 * lie in panels too, [panel][k][16], and are all that a column has: one block, a scale or none.
 * Those of 4 and 8 bits lie as integers do.
 *
 * Method. Few rows read every code once: what a row has in a block is multiplied with the codes as
 * they are, less the middle of their range, and the block's sum with its scale. Many rows have a
 * piece of some panels turned into floats in scratch, and multiply that in register tiles. So a
 * word of codes becomes floats without a conversion: its bits are put under an exponent that makes
 * them whole numbers, of which that exponent's own number is subtracted. The bits of a float of 4
 * or 8 bits are put under an exponent that makes them the float itself.
 *
 * Turned: dst[m, k] = posts(sum over n of src[m, n] * w[k, n]), of the same codes in the same
 * layout: a gradient. A piece of some panels is turned around on its way into scratch, and rows
 * multiply it in the same tiles.
 *
 * Convolutions: rows are places of the result, k goes along the channels of a group at one tap of
 * the window, then the next tap; codes are [panel][tap][channel] in place of [panel][k], and panels
 * do not go from one group to the next. Rows of a tile are read where their taps lie, channels side
 * by side, and where these are padding, from zeros in scratch. A source that lies otherwise is
 * turned channels-last in scratch first.
 *
 * By bytes, where a model lets it: rows of src are rounded to signed bytes, a scale for each block,
 * some rows at a time for all threads; ul_nbits_bytes.h multiplies them with the codes as they are.
 *
 * Every sum has one order, which follows from the shape alone, so that the bits depend neither on
 * the cut nor on threads. Units: strides in elements, sizes in bytes. Ownership: all memory is the
 * caller's. Nothing fails. Pure C99; needs no library; little-endian machines.
 */
#ifndef UL_NBITS_H
#define UL_NBITS_H

#include "ul_call.h"

enum {
    UL_NBITS_COLS = 16,         /* of a panel */
    UL_NBITS_FEW = 3,           /* rows that each read the codes */
    UL_NBITS_GROUP = 64,        /* columns that are turned into floats together, at most */
    UL_NBITS_DEPTH = 256,       /* of k, at a time */
    UL_NBITS_ROWS = 192,        /* whose sums are kept while k goes by */
    UL_NBITS_TILES = 12,        /* rows of tiles, of all sizes but that of five */
    UL_NBITS_BYTE_ROWS = 64,    /* that are kept as bytes */
    UL_NBITS_BYTE_DEPTH = 32768 /* of a block whose sums fill 32 bits at most */
};

/* Arguments after dst. */
enum { UL_NBITS_ARG_SCALES = 4, UL_NBITS_ARG_ZEROS, UL_NBITS_FIRST_POST };

/* A block of a row in bytes: its floats are about scale * byte. */
struct ul_bytes_block {
    float scale, sum; /* of the bytes */
    int32_t first;    /* -zero * sum */
};

struct ul_nbits_cut {
    int64_t rows, depth,
        columns;           /* m, k, n: of the weights, turned or not; columns of all groups */
    int64_t words, blocks; /* of a column; of 16 bits: no words */
    int64_t panel_bytes;   /* of the codes */
    int64_t panel_count;
    int64_t row_count;      /* at a time, of many */
    int few;                /* rows */
    uint64_t packed_bytes;  /* of the codes */
    uint64_t thread_bytes;  /* of scratch, of each thread */
    uint64_t shared_bytes;  /* of scratch, of all, in front of them: rows as bytes, */
    uint64_t rows_bytes;    /* that take so many, and their blocks; or the turned source */
    uint64_t scratch_bytes; /* alignment 64 */
};

static inline uint64_t ul_nbits_room(int64_t count, uint64_t size_bytes)
{
    return ((uint64_t)count * size_bytes + 63) / 64 * 64;
}

/* A convolution, by three axes of space, of which those that it lacks stand in front. */
struct ul_nbits_window {
    int64_t images, groups, channels, columns;                      /* of a group */
    int64_t in[3], out[3], kernel[3], step[3], dilation[3], pad[3]; /* pad: in front */
    int64_t src_stride[3], dst_stride[3];
    int64_t taps, places; /* of the window, of an image of the result */
};

static inline int ul_nbits_is_window(const struct ul_call *call)
{
    return call->src.rank > 2;
}

static inline void ul_nbits_window_init(struct ul_nbits_window *window, const struct ul_call *call)
{
    const uint32_t axes = call->src.rank - 2, of_group = call->group_count > 1 ? 1 : 0;
    window->images = call->src.dims[0];
    window->groups = call->group_count > 1 ? call->group_count : 1;
    window->columns = call->weights.dims[of_group];
    window->channels = call->weights.dims[of_group + 1];
    window->taps = window->places = 1;
    for (uint32_t a = 0; a < 3; a++) {
        const int is_there = a + axes >= 3;
        const uint32_t axis = is_there ? a + axes - 3 : 0;
        window->in[a] = is_there ? call->src.dims[2 + axis] : 1;
        window->out[a] = is_there ? call->dst.dims[2 + axis] : 1;
        window->kernel[a] = is_there ? call->weights.dims[of_group + 2 + axis] : 1;
        window->step[a] = is_there ? call->steps[axis] : 1;
        window->dilation[a] = is_there ? call->dilations[axis] : 1;
        window->pad[a] = is_there ? call->pads[axis] : 0;
        window->src_stride[a] = is_there ? call->src.strides[2 + axis] : 0;
        window->dst_stride[a] = is_there ? call->dst.strides[2 + axis] : 0;
        window->taps *= window->kernel[a];
        window->places *= window->out[a];
    }
}

/* k, and n. */
static inline int64_t ul_nbits_depth(const struct ul_call *call)
{
    int64_t depth = 1;
    if (!ul_nbits_is_window(call))
        return call->nbits.turned ? call->dst.dims[1] : call->src.dims[1];
    for (uint32_t d = call->group_count > 1 ? 2 : 1; d < call->weights.rank; d++)
        depth *= call->weights.dims[d];
    return depth;
}

static inline int64_t ul_nbits_columns(const struct ul_call *call)
{
    return call->nbits.turned ? call->src.dims[1] : call->dst.dims[1];
}

/* Channels do not lie side by side. */
static inline int ul_nbits_turns_source(const struct ul_call *call)
{
    return ul_nbits_is_window(call) && call->src.dims[1] > 1 && call->src.strides[1] != 1;
}

/* Rows that each read the codes: of a convolution, those that read nothing but one place. */
static inline int ul_nbits_is_few(const struct ul_call *call, int64_t rows)
{
    int is_point = call->group_count <= 1;
    for (uint32_t d = 2; d < call->src.rank; d++)
        is_point = is_point && call->weights.dims[call->weights.rank - 1 - (d - 2)] == 1 &&
                   call->pads[d - 2] == 0 &&
                   call->src.dims[d] > (call->dst.dims[d] - 1) * call->steps[d - 2];
    return rows <= UL_NBITS_FEW && !call->nbits.turned && is_point;
}

static inline void ul_nbits_cut_init(struct ul_nbits_cut *cut, const struct ul_call *call,
                                     uint32_t threads)
{
    const int64_t most = call->nbits.by_bytes ? UL_NBITS_BYTE_ROWS : UL_NBITS_ROWS;
    cut->rows = call->dst.dims[0];
    for (uint32_t d = 2; d < call->dst.rank; d++)
        cut->rows *= call->dst.dims[d];
    cut->columns = ul_nbits_columns(call);
    cut->depth = ul_nbits_depth(call);
    cut->words = cut->depth * (int64_t)call->nbits.bits / 32;
    cut->blocks = cut->depth / call->nbits.block;
    cut->panel_count = (cut->columns + UL_NBITS_COLS - 1) / UL_NBITS_COLS;
    cut->panel_bytes = cut->words * UL_NBITS_COLS * 4;
    if (call->nbits.bits == 16) {
        cut->words = 0;
        cut->panel_bytes = cut->depth * UL_NBITS_COLS * 2;
    }
    cut->packed_bytes = (uint64_t)(cut->panel_count * cut->panel_bytes);
    cut->few = ul_nbits_is_few(call, cut->rows);
    int64_t turns = (cut->rows + most - 1) / most;
    cut->row_count = (cut->rows + turns - 1) / turns;
    if (ul_nbits_is_window(call)) /* whole tiles; they are few at the end alone */
        cut->row_count = (cut->row_count + UL_NBITS_TILES - 1) / UL_NBITS_TILES * UL_NBITS_TILES;
    int64_t floats =
        cut->few ? cut->rows * cut->blocks : (UL_NBITS_DEPTH + cut->row_count) * UL_NBITS_GROUP;
    if (call->nbits.turned)
        floats += UL_NBITS_GROUP * UL_NBITS_GROUP;
    if (ul_nbits_is_window(call) && !cut->few)
        floats += UL_NBITS_DEPTH; /* zeros */
    cut->rows_bytes = cut->shared_bytes = 0;
    if (ul_nbits_turns_source(call)) {
        int64_t elements = 1;
        for (uint32_t d = 0; d < call->src.rank; d++)
            elements *= call->src.dims[d];
        cut->rows_bytes = cut->shared_bytes = ul_nbits_room(elements, sizeof(float));
    }
    if (call->nbits.by_bytes) {
        cut->rows_bytes = ul_nbits_room(cut->row_count * cut->depth, 1);
        cut->shared_bytes = cut->rows_bytes + ul_nbits_room(cut->row_count * cut->blocks,
                                                            sizeof(struct ul_bytes_block));
        floats = (call->nbits.zeros == UL_NBITS_FIXED ? 1 : 2) * cut->blocks * UL_NBITS_GROUP;
    }
    cut->thread_bytes = ul_nbits_room(floats, sizeof(float));
    cut->scratch_bytes = cut->shared_bytes + cut->thread_bytes * (threads != 0 ? threads : 1);
}

/* Packs the weights of a convolution, which are stored [n, channels, taps]; four channels of bytes
 * are a word. */
static inline void ul_nbits_pack_window(struct ul_pack *pack, const struct ul_nbits_cut *cut,
                                        const struct ul_call *call)
{
    struct ul_nbits_window window;
    const int64_t per = call->nbits.bits == 8 ? 4 : 1;
    ul_nbits_window_init(&window, call);
    memset(pack, 0, sizeof *pack);
    pack->rank = 3;
    pack->dims[0] = cut->columns;
    pack->dims[1] = window.channels;
    pack->dims[2] = window.taps;
    pack->strides[0] = cut->depth * UL_NBITS_COLS;
    pack->strides[1] = per * UL_NBITS_COLS;
    pack->strides[2] = window.channels * UL_NBITS_COLS;
    pack->block_count = per > 1 ? 2 : 1;
    pack->blocks[0] = UL_NBITS_COLS;
    if (per > 1) {
        pack->blocks[1] = per;
        pack->block_dims[1] = 1;
    }
    pack->size_bytes = cut->packed_bytes;
    pack->element_bytes = call->nbits.bits / 8;
}

/* How the codes lie, for the loader: stored they are [n, words], or [n, k] of 16 bits. */
static inline void ul_nbits_pack(struct ul_pack *pack, const struct ul_nbits_cut *cut)
{
    memset(pack, 0, sizeof *pack);
    pack->rank = 2;
    pack->dims[0] = cut->columns;
    pack->dims[1] = cut->words != 0 ? cut->words : cut->depth;
    pack->strides[0] = pack->dims[1] * UL_NBITS_COLS;
    pack->strides[1] = UL_NBITS_COLS;
    pack->block_count = 1;
    pack->blocks[0] = UL_NBITS_COLS;
    pack->size_bytes = cut->packed_bytes;
    pack->element_bytes = cut->words != 0 ? 4 : 2;
}

static inline int ul_nbits_is_operand(const struct ul_call_tensor *tensor)
{
    return tensor->type == UL_CALL_F32 && tensor->rank == 2 &&
           (tensor->dims[1] == 1 || tensor->strides[1] == 1);
}

/* Codes that are read: whole words in a block, or one block of floats, not turned. */
static inline int ul_nbits_has_codes(const struct ul_call *call)
{
    const struct ul_call_nbits *nbits = &call->nbits;
    if (nbits->bits == 16)
        return nbits->block == ul_nbits_depth(call) && nbits->zeros == UL_NBITS_FIXED &&
               !nbits->turned && !nbits->by_bytes;
    return (nbits->bits == 2 || nbits->bits == 4 || nbits->bits == 8) &&
           nbits->block * (int64_t)nbits->bits % 32 == 0 &&
           ul_nbits_depth(call) % nbits->block == 0;
}

/* The tensor that a convolution adds to its result is of floats; its strides may be any. */
static inline int ul_nbits_is_place(const struct ul_call_tensor *tensor, uint32_t rank)
{
    return tensor->type == UL_CALL_F32 && tensor->rank == rank;
}

/* This method computes the convolution: it has channels enough for a panel, panels fill up less
 * than a tenth of the codes, and groups do not cut a panel. */
static inline int ul_nbits_supports_window(const struct ul_call *call)
{
    enum { MIN_CHANNELS = 16, FILLED_PART = 10, MAX_STEP = 1 << 28 };
    struct ul_nbits_window window;
    ul_nbits_window_init(&window, call);
    for (int a = 0; a < 3; a++)
        if (window.in[a] > MAX_STEP || window.out[a] > MAX_STEP || window.pad[a] > MAX_STEP ||
            window.pad[a] < -MAX_STEP || window.step[a] > MAX_STEP)
            return 0;
    int64_t panels = (window.columns + UL_NBITS_COLS - 1) / UL_NBITS_COLS;
    int64_t filled = panels * UL_NBITS_COLS - window.columns;
    for (uint32_t i = 0; i < call->post_count; i++)
        if (call->posts[i].tensor.rank != 0 &&
            !ul_nbits_is_place(&call->posts[i].tensor, call->dst.rank))
            return 0;
    return ul_nbits_is_place(&call->src, call->src.rank) &&
           ul_nbits_is_place(&call->dst, call->src.rank) && call->src.rank <= 5 &&
           (call->bias.rank == 0 || call->bias.type == UL_CALL_F32) &&
           (call->nbits.bits == 16 || (call->nbits.bits == 8 && window.channels % 4 == 0)) &&
           window.channels >= MIN_CHANNELS && filled * FILLED_PART <= window.columns &&
           (window.groups == 1 || filled == 0);
}

/* Whether this file's method computes the call: no more than a hundredth of the codes are filled
 * up. */
static inline int ul_nbits_supports(const struct ul_call *call)
{
    if (ul_nbits_is_window(call))
        return ul_nbits_supports_window(call);
    int64_t columns = ul_nbits_columns(call);
    int64_t filled = (columns + UL_NBITS_COLS - 1) / UL_NBITS_COLS * UL_NBITS_COLS;
    for (uint32_t i = 0; i < call->post_count; i++)
        if (call->posts[i].tensor.rank != 0 && !ul_nbits_is_operand(&call->posts[i].tensor))
            return 0;
    return ul_nbits_has_codes(call) && ul_nbits_is_operand(&call->src) &&
           ul_nbits_is_operand(&call->dst) &&
           (call->bias.rank == 0 || ul_nbits_is_operand(&call->bias)) &&
           (filled - columns) * 100 <= columns;
}

/* ---- ul_nbits.c ---- */
/* args as of ul_library_run, with scales (NULL: 1) and zero points (or NULL) after dst; scratch
 * for planned_threads; 1 <= threads <= planned_threads. */
void ul_nbits_run(const struct ul_call *call, const void *const *args, unsigned char *scratch,
                  uint32_t planned_threads, uint32_t threads);

#endif

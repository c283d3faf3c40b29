/* SPDX-License-Identifier: 0BSD */
/*
 * Runs Winograd convolutions; ul_winograd.h has the method, the layouts and the cut.
 *
 * The products are register tiles, some tiles by some vectors of outputs, that read their panel of
 * U in place. The rim is kept out of the loops: a patch that leaves the source, and channels that
 * do not fill a vector, are staged in a small dense patch with zeros around; results go through a
 * small block, on which the post-operations work, and those that exist are copied out.
 */
#include "ul_winograd.h"

#include "ul_kernel.h"
#include "ul_posts.h"

#ifdef _OPENMP
#include <omp.h>
#endif

#if UL_VECTOR_BYTES > 0
typedef ul_f32v vec;
typedef ul_f32v_loose loose;
#else
typedef float vec;
typedef float loose;
#endif

/* Vectors of a register tile, and its rows for each number of vectors: as many accumulators as
   there are registers for. */
#if UL_VECTOR_BYTES == 64 || defined(__aarch64__)
#define TILE_VECTORS 4
#define ROWS_1 8
#define ROWS_2 12
#define ROWS_3 8
#define ROWS_4 6
#else
#define TILE_VECTORS 2
#define ROWS_1 6
#define ROWS_2 6
#endif
#define ROWS_MAX 12

enum {
    LANES = UL_LANES(float),
    POINTS = UL_WINOGRAD_POINTS,
    COLS = UL_WINOGRAD_COLS,
    STAGE = 64 /* channels of a staged patch */
};

struct job {
    const struct ul_call *call;
    struct ul_winograd tiling;
    const float *src, *weights, *bias;
    float *dst;
    const float *posts[UL_CALL_POSTS]; /* what post-operations read */
};

/* ---- V: patches of the source, transformed ---- */

/* Transforms 4x4 pixels of `vectors` vectors of channels: V[p] = (B^T d B)[p] goes to `to` + p *
 * plane. */
static void transform_patch(float *to, int64_t plane, const float *from, int64_t row,
                            int64_t column, int64_t vectors)
{
    for (int64_t i = 0; i < vectors; i++, to += LANES, from += LANES) {
        vec t[4][4];
        UL_UNROLL
        for (int x = 0; x < 4; x++) {
            const float *at = from + x * column;
            const vec d0 = *(const loose *)at, d1 = *(const loose *)(at + row);
            const vec d2 = *(const loose *)(at + 2 * row), d3 = *(const loose *)(at + 3 * row);
            t[0][x] = d0 - d2;
            t[1][x] = d1 + d2;
            t[2][x] = d2 - d1;
            t[3][x] = d1 - d3;
        }
        UL_UNROLL
        for (int y = 0; y < 4; y++) {
            float *out = to + 4 * y * plane;
            *(loose *)out = t[y][0] - t[y][2];
            *(loose *)(out + plane) = t[y][1] + t[y][2];
            *(loose *)(out + 2 * plane) = t[y][2] - t[y][1];
            *(loose *)(out + 3 * plane) = t[y][1] - t[y][3];
        }
    }
}

/* Copies `count` channels of the patch at [y, x] of the image, zeros where it leaves it and up to a
   whole vector. */
static void stage_patch(float *stage, const float *image, const struct ul_call_tensor *src,
                        int64_t y, int64_t x, int64_t count)
{
    const int64_t width = (count + LANES - 1) / LANES * LANES;
    for (int64_t i = 0; i < 16; i++, stage += STAGE) {
        int64_t py = y + i / 4, px = x + i % 4;
        int64_t have = 0;
        if (py >= 0 && py < src->dims[2] && px >= 0 && px < src->dims[3]) {
            const float *from = image + py * src->strides[2] + px * src->strides[3];
            memcpy(stage, from, (size_t)count * sizeof *stage);
            have = count;
        }
        for (int64_t c = have; c < width; c++)
            stage[c] = 0;
    }
}

/* Computes V of tile `index` of the whole call, into row `to`. */
static void transform_tile(const struct job *job, float *to, int64_t index)
{
    const struct ul_winograd *tiling = &job->tiling;
    const struct ul_call_tensor *src = &job->call->src;
    float stage[16 * STAGE];
    const int64_t image_tiles = tiling->tile_rows * tiling->tile_cols;
    const int64_t rest = index % image_tiles;
    const int64_t *begin = job->call->tile_begin;
    const int64_t y = rest / tiling->tile_cols * 2 - job->call->pads[0] - begin[0];
    const int64_t x = rest % tiling->tile_cols * 2 - job->call->pads[1] - begin[1];
    const float *image = job->src + index / image_tiles * src->strides[0];
    int64_t done = 0;
    if (y >= 0 && y + 4 <= src->dims[2] && x >= 0 && x + 4 <= src->dims[3]) {
        done = tiling->channels / LANES * LANES;
        transform_patch(to, tiling->plane, image + y * src->strides[2] + x * src->strides[3],
                        src->strides[2], src->strides[3], done / LANES);
    }
    for (; done < tiling->channels; done += STAGE) {
        int64_t count = tiling->channels - done < STAGE ? tiling->channels - done : STAGE;
        stage_patch(stage, image + done, src, y, x, count);
        transform_patch(to + done, tiling->plane, stage, 4 * STAGE, STAGE,
                        (count + LANES - 1) / LANES);
    }
}

/* ---- M: the products ---- */

/* sums[r][c] = the sum over i of a[r][i] * panel[i][c]: rows x vectors accumulators. The counts
   are constants at each call, so that the loops unroll and the accumulators stay in registers. */
UL_INLINE void tile(float *sums, int64_t cols, const float *a, int64_t a_row, const float *panel,
                    int64_t k, int rows, int vectors)
{
    vec acc[ROWS_MAX][TILE_VECTORS];
    UL_UNROLL
    for (int r = 0; r < rows; r++) {
        UL_UNROLL
        for (int v = 0; v < vectors; v++)
            acc[r][v] = (vec){0};
    }
    for (int64_t i = 0; i < k; i++, panel += cols, a++) {
        vec b[TILE_VECTORS];
        UL_UNROLL
        for (int v = 0; v < vectors; v++)
            b[v] = *(const loose *)(panel + v * LANES);
        UL_UNROLL
        for (int r = 0; r < rows; r++) {
            const float factor = a[r * a_row];
            UL_UNROLL
            for (int v = 0; v < vectors; v++)
                acc[r][v] += b[v] * factor;
        }
    }
    UL_UNROLL
    for (int r = 0; r < rows; r++) {
        UL_UNROLL
        for (int v = 0; v < vectors; v++)
            *(loose *)(sums + r * cols + v * LANES) = acc[r][v];
    }
}

#define TILE_CASE(r, v)                                                                            \
    case (r):                                                                                      \
        if ((r) <= ROWS_##v)                                                                       \
            tile(sums, cols, a, a_row, panel, k, (r) <= ROWS_##v ? (r) : 1, v);                    \
        break;

/* `count` rows of `v` vectors, cut into even groups of at most ROWS_v. */
#define TILES(v)                                                                                   \
    static void tiles_##v(float *sums, int64_t cols, const float *a, int64_t a_row,                \
                          const float *panel, int64_t k, int64_t count)                            \
    {                                                                                              \
        for (int64_t left = (count + ROWS_##v - 1) / ROWS_##v; left > 0; left--) {                 \
            const int64_t rows = (count + left - 1) / left;                                        \
            switch (rows) {                                                                        \
                TILE_CASE(1, v)                                                                    \
                TILE_CASE(2, v)                                                                    \
                TILE_CASE(3, v)                                                                    \
                TILE_CASE(4, v)                                                                    \
                TILE_CASE(5, v)                                                                    \
                TILE_CASE(6, v)                                                                    \
                TILE_CASE(7, v)                                                                    \
                TILE_CASE(8, v)                                                                    \
                TILE_CASE(9, v)                                                                    \
                TILE_CASE(10, v)                                                                   \
                TILE_CASE(11, v)                                                                   \
                TILE_CASE(12, v)                                                                   \
            default:                                                                               \
                break;                                                                             \
            }                                                                                      \
            sums += rows * cols;                                                                   \
            a += rows * a_row;                                                                     \
            count -= rows;                                                                         \
        }                                                                                          \
    }

TILES(1)
TILES(2)
#if TILE_VECTORS == 4
TILES(3)
TILES(4)
#endif

/* Computes M of `count` tiles, whose V begins at `input`, for one panel. */
static void multiply(const struct ul_winograd *tiling, float *sums, const float *input,
                     const float *panel, int64_t count)
{
    const int64_t cols = tiling->panel_cols, k = tiling->channels;
    for (int p = 0; p < POINTS; p++) {
        for (int64_t c = 0; c < cols; c += TILE_VECTORS * LANES) {
            switch ((cols - c) / LANES) {
            case 1:
                tiles_1(sums + c, cols, input, tiling->row, panel + c, k, count);
                break;
#if TILE_VECTORS == 4
            case 2:
                tiles_2(sums + c, cols, input, tiling->row, panel + c, k, count);
                break;
            case 3:
                tiles_3(sums + c, cols, input, tiling->row, panel + c, k, count);
                break;
            default:
                tiles_4(sums + c, cols, input, tiling->row, panel + c, k, count);
                break;
#else
            default:
                tiles_2(sums + c, cols, input, tiling->row, panel + c, k, count);
                break;
#endif
            }
        }
        sums += tiling->sums_plane;
        input += tiling->plane;
        panel += k * cols;
    }
}

/* ---- post-operations ---- */

#define EACH(expression)                                                                           \
    for (int64_t i = 0; i < count; i++) {                                                          \
        const float x = y[i], z = other[i];                                                        \
        y[i] = (expression);                                                                       \
    }                                                                                              \
    break

/* y = y op other */
static void apply_binary(enum ul_post_kind kind, float *UL_RESTRICT y,
                         const float *UL_RESTRICT other, int64_t count)
{
    switch (kind) {
    case UL_POST_SUM:
    case UL_POST_ADD:
        EACH(x + z);
    case UL_POST_SUB:
        EACH(x - z);
    case UL_POST_MUL:
        EACH(x * z);
    case UL_POST_DIV:
        EACH(x / z);
    case UL_POST_MAX:
        EACH(ul_max_f32(x, z));
    case UL_POST_MIN:
        EACH(ul_min_f32(x, z));
    case UL_POST_RELU:
    case UL_POST_CLIP:
    case UL_POST_GELU_ERF:
    case UL_POST_GELU_TANH:
    case UL_POST_SWISH:
    case UL_POST_HARD_SWISH:
    case UL_POST_LOGISTIC:
    case UL_POST_TANH:
    case UL_POST_ELU:
    case UL_POST_LINEAR:
    case UL_POST_ROUND:
        break;
    }
}

#undef EACH

/* A tile's results: four pixels of `pitch` channels, of which `count` from `first` on are the
   call's. Those outside of dst are computed and dropped. */
struct block {
    float *y;
    int64_t pitch, first, count;
    int64_t image, row, column;
};

static int is_inside(const struct block *block, int i, const struct ul_call_tensor *dst)
{
    const int64_t row = block->row + i / 2, column = block->column + i % 2;
    return row >= 0 && row < dst->dims[2] && column >= 0 && column < dst->dims[3];
}

static float *pixel_of(const struct job *job, const struct block *block, int i)
{
    const struct ul_call_tensor *dst = &job->call->dst;
    return job->dst + block->image * dst->strides[0] + block->first +
           (block->row + i / 2) * dst->strides[2] + (block->column + i % 2) * dst->strides[3];
}

/* The channels of pixel `i` of a tensor that is broadcast over dst; axes count from the last one.
 */
static const float *gather(float *buffer, const float *tensor, const struct ul_call_tensor *shape,
                           const struct block *block, int i)
{
    const int64_t at[4] = {block->image, block->first, block->row + i / 2, block->column + i % 2};
    int64_t channel_stride = 0;
    for (uint32_t d = 0; d < shape->rank; d++) {
        uint32_t axis = d + 4 - shape->rank;
        int64_t stride = shape->dims[d] == 1 ? 0 : shape->strides[d];
        tensor += at[axis] * stride;
        channel_stride = axis == 1 ? stride : channel_stride;
    }
    if (channel_stride == 1)
        return tensor;
    for (int64_t c = 0; c < block->count; c++)
        buffer[c] = tensor[c * channel_stride];
    return buffer;
}

static void apply_posts(const struct job *job, const struct block *block)
{
    const struct ul_call *call = job->call;
    float buffer[COLS];
    for (uint32_t p = 0; p < call->post_count; p++) {
        const struct ul_post *post = &call->posts[p];
        if (post->kind < UL_POST_SUM) {
            ul_post_apply(post, block->y, 4 * block->pitch);
            continue;
        }
        for (int i = 0; i < 4; i++) {
            float *y = block->y + i * block->pitch;
            if (!is_inside(block, i, &call->dst))
                continue;
            apply_binary(post->kind, y,
                         post->kind == UL_POST_SUM
                             ? pixel_of(job, block, i)
                             : gather(buffer, job->posts[p], &post->tensor, block, i),
                         block->count);
        }
    }
}

/* ---- dst ---- */

/* Computes A^T M A + bias of one tile and a panel's columns: four pixels of `cols` channels. */
static void transform_sums(float *y, const float *sums, int64_t plane, const float *bias,
                           int64_t cols)
{
    for (int64_t i = 0; i < cols; i += LANES, sums += LANES, bias += LANES, y += LANES) {
        const vec b = *(const loose *)bias;
        vec s[2][4];
        UL_UNROLL
        for (int x = 0; x < 4; x++) {
            const float *at = sums + x * plane;
            const vec m0 = *(const loose *)at, m1 = *(const loose *)(at + 4 * plane);
            const vec m2 = *(const loose *)(at + 8 * plane);
            const vec m3 = *(const loose *)(at + 12 * plane);
            s[0][x] = m0 + m1 + m2;
            s[1][x] = m1 - m2 - m3;
        }
        UL_UNROLL
        for (int r = 0; r < 2; r++) {
            *(loose *)(y + 2 * r * cols) = s[r][0] + s[r][1] + s[r][2] + b;
            *(loose *)(y + (2 * r + 1) * cols) = s[r][1] - s[r][2] - s[r][3] + b;
        }
    }
}

static void copy_out(float *to, const float *from, int64_t count)
{
    int64_t c = 0;
    for (; c + LANES <= count; c += LANES)
        *(loose *)(to + c) = *(const loose *)(from + c);
    for (; c < count; c++)
        to[c] = from[c];
}

/* Writes the results of tile `index` and panel `panel`. */
static void finish_tile(const struct job *job, const float *sums, const float *bias, int64_t index,
                        int64_t panel)
{
    const struct ul_winograd *tiling = &job->tiling;
    const int64_t image_tiles = tiling->tile_rows * tiling->tile_cols;
    const int64_t rest = index % image_tiles;
    float y[4 * COLS];
    struct block block = {.y = y,
                          .pitch = tiling->panel_cols,
                          .first = panel * tiling->panel_cols,
                          .image = index / image_tiles,
                          .row = rest / tiling->tile_cols * 2 - job->call->tile_begin[0],
                          .column = rest % tiling->tile_cols * 2 - job->call->tile_begin[1]};
    block.count = tiling->outputs - block.first;
    block.count = block.count < block.pitch ? block.count : block.pitch;
    transform_sums(y, sums, tiling->sums_plane, bias, block.pitch);
    apply_posts(job, &block);
    for (int i = 0; i < 4; i++)
        if (is_inside(&block, i, &job->call->dst))
            copy_out(pixel_of(job, &block, i), y + i * block.pitch, block.count);
}

/* `count` tiles from `begin` on, and one panel; `input` is the V of the first. */
static void run_panel(const struct job *job, float *sums, const float *input, int64_t begin,
                      int64_t count, int64_t panel)
{
    const struct ul_winograd *tiling = &job->tiling;
    const int64_t first = panel * tiling->panel_cols;
    float bias[COLS];
    for (int64_t c = 0; c < tiling->panel_cols; c++)
        bias[c] = job->bias != NULL && first + c < tiling->outputs ? job->bias[first + c] : 0;
    multiply(tiling, sums, input, job->weights + first * POINTS * tiling->channels, count);
    for (int64_t t = 0; t < count; t++)
        finish_tile(job, sums + t * tiling->panel_cols, bias, begin + t, panel);
}

/* ---- threads ---- */

/* Where part `index` of `parts` of `count` items begins. */
static int64_t part_begin(int64_t count, int64_t parts, int64_t index)
{
    return count / parts * index + (count % parts < index ? count % parts : index);
}

static int64_t block_end(const struct ul_winograd *tiling, int64_t block)
{
    int64_t end = (block + 1) * tiling->block_tiles;
    return end < tiling->tile_count ? end : tiling->tile_count;
}

/* Runs blocks of tiles, each with all that it needs. */
static void run_blocks(const struct job *job, unsigned char *scratch, int64_t thread,
                       int64_t threads)
{
    const struct ul_winograd *tiling = &job->tiling;
    const int64_t end = part_begin(tiling->block_count, threads, thread + 1);
    float *input =
        (float *)(void *)(scratch + (uint64_t)thread * (tiling->input_bytes + tiling->sums_bytes));
    float *sums = input + tiling->input_bytes / sizeof(float);
    for (int64_t block = part_begin(tiling->block_count, threads, thread); block < end; block++) {
        const int64_t begin = block * tiling->block_tiles, count = block_end(tiling, block) - begin;
        for (int64_t t = 0; t < count; t++)
            transform_tile(job, input + t * tiling->row, begin + t);
        for (int64_t panel = 0; panel < tiling->panel_count; panel++)
            run_panel(job, sums, input, begin, count, panel);
    }
}

/* One V for all tiles: every thread makes a part of it. */
static void share_input(const struct job *job, float *input, int64_t thread, int64_t threads)
{
    const int64_t end = part_begin(job->tiling.tile_count, threads, thread + 1);
    for (int64_t t = part_begin(job->tiling.tile_count, threads, thread); t < end; t++)
        transform_tile(job, input + t * job->tiling.row, t);
}

/* Then each thread takes some pairs of a panel and a block of tiles. */
static void share_panels(const struct job *job, const float *input, unsigned char *scratch,
                         int64_t thread, int64_t threads)
{
    const struct ul_winograd *tiling = &job->tiling;
    const int64_t items = tiling->panel_count * tiling->block_count;
    const int64_t end = part_begin(items, threads, thread + 1);
    float *sums = (float *)(void *)(scratch + (uint64_t)thread * tiling->sums_bytes);
    for (int64_t item = part_begin(items, threads, thread); item < end; item++) {
        const int64_t block = item % tiling->block_count, begin = block * tiling->block_tiles;
        run_panel(job, sums, input + begin * tiling->row, begin, block_end(tiling, block) - begin,
                  item / tiling->block_count);
    }
}

static void run_thread(const struct job *job, unsigned char *scratch, int64_t thread,
                       int64_t threads)
{
    if (!job->tiling.shared) {
        run_blocks(job, scratch, thread, threads);
        return;
    }
    share_input(job, (float *)(void *)scratch, thread, threads);
#ifdef _OPENMP
    if (threads > 1) { /* else the team is the caller's, if there is one */
#pragma omp barrier
    }
#endif
    share_panels(job, (const float *)(const void *)scratch, scratch + job->tiling.input_bytes,
                 thread, threads);
}

void ul_winograd_run(const struct ul_call *call, const void *const *args, unsigned char *scratch,
                     uint32_t planned_threads, uint32_t threads)
{
    struct job job = {.call = call, .src = args[0], .weights = args[1], .bias = args[2]};
    uint32_t next = 4;
    memcpy(&job.dst, &args[3], sizeof job.dst); /* this one is written: without its const */
    for (uint32_t i = 0; i < call->post_count; i++)
        if (call->posts[i].kind >= UL_POST_ADD)
            job.posts[i] = args[next++];
    ul_winograd_tiling(&job.tiling, call, planned_threads);
#ifdef _OPENMP
    if (threads > 1) {
#pragma omp parallel num_threads((int)threads)
        run_thread(&job, scratch, omp_get_thread_num(), omp_get_num_threads());
        return;
    }
#endif
    (void)threads;
    run_thread(&job, scratch, 0, 1);
}

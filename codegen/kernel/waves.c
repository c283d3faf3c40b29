/* SPDX-License-Identifier: Apache-2.0 */
/* Predicts how long blocks of threads take on the multiprocessors of a device.
 *
 * Problem: a launch ends with its last block, so work / rate is too short where blocks are few, do
 * not fill the last wave, or differ. Method: multiprocessors take blocks that keep them busy in
 * waves, one each.
 *
 *      132 multiprocessors, 150 blocks:  |################|##              |   2 waves for 1.14
 *
 * A launch takes the longer of its waves and of its longest block. A library's product takes the
 * best of a table of tiles: a large tile reads fewer operands for each product, small tiles are
 * more blocks. (NVIDIA, "Matrix Multiplication Background User's Guide", DU-09799-001, calls the
 * two effects tile and wave quantization, and has the tiles of cuBLAS from 256 x 128, the most
 * efficient, down to 64 x 64.) Tiles at the edge count in full, and where k may be cut into parts,
 * one more launch writes, reads and adds their sums.
 *
 * The L2 cache limits how much of the peak a tile reaches, since it has to deliver the tile's
 * operands. The cache of an A100 gives 5120 bytes a clock (NVIDIA's white paper), which is 67 bytes
 * a nanosecond for each of its 108 multiprocessors. The cache of an H100 has a higher clock and
 * gives 68 for each of 132. From compute capability 9.0 on, libraries launch pairs of blocks that
 * read one of their operands once for both (clusters). With that, a tile of 256 x 128 reaches the
 * peak of an H100 in 16 bits, 128 x 128 reaches 77 % of it, and 64 x 64 reaches 39 %. On older
 * devices a tile of 128 x 64 reaches the peak.
 *
 * Left undone: blocks that share a multiprocessor and hide each other's waiting; rates of L2 by
 * device. These figures have not been measured against a library. */
#include "codegen/kernel/waves.h"

#define L2_RATE 68.0 /* bytes of operands that a multiprocessor reads in a nanosecond */
#define PAIRS 90     /* the first compute capability whose blocks read in pairs */
#define MAX_PARTS 64 /* most parts of k that are considered */

struct ul_waves ul_waves_of_blocks(const struct ul_profile *profile, uint64_t block_count,
                                   double longest)
{
    struct ul_waves waves = {.work = 1, .memory = 1};
    uint64_t processors = profile->device.processors;
    if (block_count == 0 || processors == 0)
        return waves;
    double full = (double)block_count / (double)processors;
    double whole = longest > 0 ? (double)ul_size_div_up(block_count, processors) : full;
    double least = longest > 1 ? longest : 1;
    waves.work = (whole > least ? whole : least) / full;
    /* A multiprocessor draws up to twice its share of the rate of memory. */
    if (full < 0.5)
        waves.memory = 0.5 / full;
    UL_ASSERT(waves.work >= 1 && waves.memory >= 1);
    return waves;
}

/* The fraction for a tile that reads that many rows and columns of operands for m x n products. */
static double share_of(const struct ul_profile *profile, enum ul_work_kind kind, uint64_t rows,
                       uint64_t columns, uint64_t element_bytes)
{
    double each = profile->rates[kind] / (double)profile->device.processors;
    double operations = 2 * (double)rows * (double)columns;
    double bytes = (double)(rows + columns) * (double)element_bytes;
    double share = operations / bytes * L2_RATE / each;
    UL_ASSERT(share > 0);
    return share < 1 ? share : 1;
}

double ul_waves_share(const struct ul_profile *profile, enum ul_work_kind kind,
                      const struct ul_work_tile *tile)
{
    bool is_product = kind < UL_WORK_WINDOW;
    if (profile->device.processors == 0 || tile->rows == 0 || !is_product)
        return 1;
    return share_of(profile, kind, tile->rows, tile->columns, tile->element_bytes);
}

/* One tile in all of its waves, with k cut into `parts`. */
static double tiled_ns(const struct ul_profile *profile, const struct ul_work_product *product,
                       double moved_ns, uint64_t rows, uint64_t columns, uint64_t parts)
{
    uint64_t across = ul_size_div_up(product->m, rows), down = ul_size_div_up(product->n, columns);
    uint64_t blocks = ul_size_mul_saturating(ul_size_mul_saturating(across, down), product->batch);
    blocks = ul_size_mul_saturating(blocks, parts);
    bool pairs = profile->device.capability >= PAIRS;
    uint64_t more_rows = pairs && rows <= columns ? 2 * rows : rows;
    uint64_t more_columns = pairs && rows > columns ? 2 * columns : columns;
    double share =
        share_of(profile, product->kind, more_rows, more_columns, product->element_bytes);
    double each = profile->rates[product->kind] * share / (double)profile->device.processors;
    double tile_ns =
        2 * (double)rows * (double)columns * (double)ul_size_div_up(product->k, parts) / each;
    double work_ns = (double)ul_size_div_up(blocks, profile->device.processors) * tile_ns;
    double memory_ns = moved_ns * ul_waves_of_blocks(profile, blocks, 0).memory;
    double ns = work_ns > memory_ns ? work_ns : memory_ns;
    if (parts == 1)
        return ns;
    double sums = (double)product->batch * (double)product->m * (double)product->n;
    double rate = profile->levels[profile->level_count - 1].rate;
    return ns + profile->overhead_ns + 2 * sizeof(float) * (double)parts * sums / rate;
}

double ul_waves_product_ns(const struct ul_profile *profile, const struct ul_work_product *product,
                           double moved_ns)
{
    static const struct {
        uint32_t rows, columns;
    } tiles[] = {{256, 128}, {128, 256}, {128, 128}, {256, 64}, {64, 256}, {128, 64},
                 {64, 128},  {64, 64},   {64, 32},   {32, 64},  {64, 16},  {16, 64}};
    uint64_t most = product->max_parts < MAX_PARTS ? product->max_parts : MAX_PARTS;
    double best_ns = 0;
    UL_ASSERT(product->m > 0 && product->n > 0 && profile->device.processors > 0);
    for (uint32_t t = 0; t < sizeof tiles / sizeof *tiles; t++) {
        for (uint64_t parts = 1; parts == 1 || parts <= most; parts++) {
            double ns =
                tiled_ns(profile, product, moved_ns, tiles[t].rows, tiles[t].columns, parts);
            best_ns = best_ns > 0 && best_ns <= ns ? best_ns : ns;
        }
    }
    return best_ns;
}

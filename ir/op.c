/* SPDX-License-Identifier: Apache-2.0 */
/* The operator table: every row of every family, from ir/ops/all.def. */

#include "ir/op_names.h"
#include "ir/ops/all.def" /* the hooks */

#include <string.h>

static const struct ul_op_info rows[UL_OP_COUNT] = {
    [UL_OP_NONE] = {.name = "None"},
#define UL_OP(id, ...) [UL_OP_##id] = {__VA_ARGS__},
#include "ir/ops/all.def"
#undef UL_OP
};

const struct ul_op_info *ul_op_get(ul_op_id op)
{
    UL_ASSERT(op < UL_OP_COUNT);
    return &rows[op];
}

bool ul_op_is_map(ul_op_id op)
{
    const struct ul_op_info *row = ul_op_get(op);
    return row->map != NULL || row->expression != NULL;
}

ul_op_id ul_op_end(void)
{
    return UL_OP_COUNT;
}

bool ul_op_has_gradient(ul_op_id op)
{
    const struct ul_op_info *row = ul_op_get(op);
    bool has = row->gradient != NULL;
    for (uint32_t i = 0; i < UL_OP_GRADIENTS; i++)
        has = has || row->gradients[i] != NULL;
    return has;
}

static bool same_domain(const char *row, const char *requested)
{
    bool row_is_default = row == NULL || row[0] == '\0' || strcmp(row, "ai.onnx") == 0;
    bool asked_default =
        requested == NULL || requested[0] == '\0' || strcmp(requested, "ai.onnx") == 0;
    if (row_is_default || asked_default)
        return row_is_default && asked_default;
    return strcmp(row, requested) == 0;
}

/* A scan: nearly all of some 200 rows are ruled out by their first letter, so it costs less than
 * decoding the name did, and needs no index that would have to be kept sorted by hand. */
ul_op_id ul_op_find(const char *domain, const char *name)
{
    for (ul_op_id i = 1; i < UL_OP_COUNT; i++) {
        if (rows[i].name[0] == name[0] && strcmp(rows[i].name, name) == 0 &&
            same_domain(rows[i].domain, domain))
            return i;
    }
    return UL_OP_NONE;
}

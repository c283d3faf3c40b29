/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of com.microsoft. Those without a row here or in ir/ops are unsupported. */
#include "frontend/upgrade_microsoft.h"
#include "ir/op.h"

static void same(struct ul_old_node *node)
{
    ul_old_become(node, node->op);
}

static const struct ul_upgrade_row rows[] = {
#include "frontend/microsoft.def"
#include "frontend/microsoft_attention.def"
};

void ul_upgrade_microsoft(struct ul_old_node *node)
{
    const struct ul_upgrade_row *row = ul_rows_find(rows, sizeof rows / sizeof *rows, node->op);
    if (row != NULL)
        ul_rows_upgrade(node, row);
    else if (ul_op_find(node->domain, node->op) != UL_OP_NONE)
        ul_rows_refuse_sequences(node);
}

void ul_upgrade_microsoft_nchwc(struct ul_old_node *node)
{
    ul_old_problem(node, "is in onnxruntime's own blocked layout, which differs from machine to "
                         "machine; save the optimized model at the extended level "
                         "(graph_optimization_level ORT_ENABLE_EXTENDED)");
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of ai.onnx.ml. There are no tensors of strings here, so operators that take strings are
 * refused, and outputs that are strings are withheld. */
#include "frontend/upgrade_ml.h"

static const struct ul_upgrade_row rows[] = {
#include "frontend/ml.def"
};

void ul_upgrade_ml(struct ul_old_node *node)
{
    const struct ul_upgrade_row *row = ul_rows_find(rows, sizeof rows / sizeof *rows, node->op);
    if (row == NULL)
        return;
    ul_rows_upgrade(node, row);
    node->finished = true;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Removes from a file what belongs to training, so that it computes as in inference.
 *
 *      Y, mean', var' = BatchNormalization {training_mode=1} (X, scale, B, mean, var)
 *   -> Y = BatchNormalization (X, scale, B, mean, var);  mean' = Identity(mean), where it is read
 *      Y = Dropout(X, ratio, training_mode)  ->  Y = Dropout(X, ratio)
 *      Y = ullage::StopGradient(X)  ->  Y = Identity(X)
 *
 * Problem: a model that was exported to be trained normalizes by the statistics of its batch and
 * drops elements wherever it is run. Method: nodes lose the attribute, the last inputs and the last
 * outputs that ask for training, which are the same in all operator sets. Before set 14, more than
 * one output of BatchNormalization meant training. */
#include "frontend/export_internal.h"

#include <string.h>

/* Fields of NodeProto and AttributeProto. */
enum { NODE_INPUT = 1, NODE_OUTPUT, NODE_NAME, NODE_OP, NODE_ATTRIBUTE, NODE_DOMAIN = 7 };
enum { ATTRIBUTE_NAME = 1, ATTRIBUTE_INT = 3, ATTRIBUTE_REFERENCE = 21 };

/* The attribute that asks for training, and how many inputs and outputs the node has in inference.
 * Outputs 1 and 2 of a normalization are then inputs 3 and 4. */
static const struct row {
    const char *domain, *op, *attribute;
    uint32_t input_count, output_count;
    const char *becomes; /* the operator of ai.onnx that it becomes; NULL: it stays */
} rows[] = {{"", "BatchNormalization", "training_mode", 5, 1, NULL},
            {"com.microsoft", "BatchNormInternal", "training_mode", 5, 1, NULL},
            {"", "Dropout", NULL, 2, UINT32_MAX, NULL},
            {"ullage", "StopGradient", NULL, 1, 1, "Identity"}};

static bool is_text(const unsigned char *data, const struct ul_wire_field *field, const char *text)
{
    uint64_t length = field->end - field->begin;
    return field->wire_type == UL_WIRE_BYTES && length == strlen(text) &&
           memcmp(data + field->begin, text, (size_t)length) == 0;
}

static const char *copy_text(struct ul_arena *arena, const unsigned char *data,
                             const struct ul_wire_field *field)
{
    return ul_arena_printf(arena, "%.*s", (int)(field->end - field->begin),
                           (const char *)data + field->begin);
}

/* Reads the next field of a message that the scan has checked. */
static struct ul_wire_field next(const unsigned char *data, uint64_t *at, uint64_t end)
{
    struct ul_wire_field field = {0};
    const char *wrong = ul_wire_next(data, at, end, &field);
    UL_ASSERT(wrong == NULL);
    return field;
}

static const struct row *find_row(const unsigned char *data, const struct ul_wire_field *node)
{
    struct ul_wire_field op = {0}, domain = {.wire_type = UL_WIRE_BYTES};
    for (uint64_t at = node->begin; at < node->end;) {
        const struct ul_wire_field field = next(data, &at, node->end);
        if (field.number == NODE_OP)
            op = field;
        if (field.number == NODE_DOMAIN)
            domain = field;
    }
    if (is_text(data, &domain, "ai.onnx"))
        domain.end = domain.begin;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (is_text(data, &op, rows[i].op) && is_text(data, &domain, rows[i].domain))
            return &rows[i];
    return NULL;
}

/* Whether the attribute is the one that asks for training, and (in *trains) whether it does: its
 * number is not 0, or comes from the function's caller. */
static bool is_mode(const unsigned char *data, const struct ul_wire_field *attribute,
                    const char *name, bool *trains)
{
    bool is_named = false;
    *trains = false;
    for (uint64_t at = attribute->begin; at < attribute->end;) {
        const struct ul_wire_field field = next(data, &at, attribute->end);
        if (field.number == ATTRIBUTE_NAME)
            is_named = name != NULL && is_text(data, &field, name);
        if ((field.number == ATTRIBUTE_INT && field.value != 0) ||
            (field.number == ATTRIBUTE_REFERENCE && field.end > field.begin))
            *trains = true;
    }
    return is_named;
}

static void note_extra(struct ul_export_mode *mode, const struct row *row, const char *name,
                       bool is_input, uint32_t index)
{
    bool is_extra = index >= (is_input ? row->input_count : row->output_count);
    mode->trains = mode->trains || (is_extra && name[0] != '\0');
    if (is_input && (index == 3 || index == 4))
        mode->running[index - 3] = name;
    if (!is_input && is_extra && index <= 2)
        mode->outputs[index - 1] = name;
    else if (!is_input && is_extra && name[0] != '\0' && mode->other == NULL)
        mode->other = name;
}

void ul_export_mode_read(struct ul_export_mode *mode, struct ul_arena *arena,
                         const unsigned char *data, const struct ul_wire_field *node)
{
    const struct row *row = find_row(data, node);
    uint32_t counts[2] = {0};
    *mode = (struct ul_export_mode){.input_count = UINT32_MAX, .output_count = UINT32_MAX};
    if (row == NULL)
        return;
    for (uint64_t at = node->begin; at < node->end;) {
        const struct ul_wire_field field = next(data, &at, node->end);
        bool is_input = field.number == NODE_INPUT, trains = false;
        if (is_input || field.number == NODE_OUTPUT)
            note_extra(mode, row, copy_text(arena, data, &field), is_input, counts[is_input]++);
        if (field.number == NODE_NAME)
            mode->name = copy_text(arena, data, &field);
        if (field.number == NODE_ATTRIBUTE && is_mode(data, &field, row->attribute, &trains))
            mode->trains = mode->trains || trains;
    }
    mode->trains = mode->trains || row->becomes != NULL;
    if (!mode->trains)
        return;
    mode->becomes = row->becomes;
    mode->attribute = row->attribute;
    mode->input_count = row->input_count;
    mode->output_count = row->output_count;
}

bool ul_export_mode_drops(struct ul_export_mode *mode, const unsigned char *data,
                          const struct ul_wire_field *field)
{
    bool trains;
    if (field->number == NODE_INPUT)
        return mode->inputs_seen++ >= mode->input_count;
    if (field->number == NODE_OUTPUT)
        return mode->outputs_seen++ >= mode->output_count;
    if (field->number == NODE_OP || field->number == NODE_DOMAIN)
        return mode->becomes != NULL;
    return field->number == NODE_ATTRIBUTE && mode->attribute != NULL &&
           is_mode(data, field, mode->attribute, &trains);
}

void ul_export_mode_operator(struct ul_text *node, const char *op)
{
    ul_wire_put_string(node, NODE_OP, op);
}

void ul_export_mode_identity(struct ul_text *node, const char *from, const char *to)
{
    ul_wire_put_string(node, NODE_INPUT, from);
    ul_wire_put_string(node, NODE_OUTPUT, to);
    ul_export_mode_operator(node, "Identity");
}

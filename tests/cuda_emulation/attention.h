/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What attention.cc and attention_gradient.cc share: elements of tensors, and operations of a graph
 * in the order in which programs put them.
 */
#ifndef ATTENTION_H
#define ATTENTION_H

#include "graph.h"

#include <math.h>

enum { MAX_MASKS = 2 };

static inline int64_t at(const struct tensor &tensor, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const int64_t index[] = {b, h, i, j};
    int64_t offset = 0;
    for (size_t d = 0; d < 4; d++)
        offset += (tensor.dims[d] == 1 ? 0 : index[d]) * tensor.strides[d];
    return offset;
}

static inline float rounded(enum element type, float x)
{
    float place; /* of any type */
    element_put(&place, type, 0, x);
    return element_get(&place, type, 0);
}

/* Gives the place of an operand of a run, and notes its extent. */
static inline void *place_operand(const struct run &run, std::vector<struct extent> *operands,
                                  const char *name, const struct tensor &tensor)
{
    void *bytes = run.places.at(tensor.uid);
    operands->push_back({name, bytes, graph_reach(tensor)});
    return bytes;
}

/* Requires one more result to be apart from all operands; it is then an operand for the next. */
static inline void need_result(std::vector<struct extent> *operands, const struct extent &result)
{
    for (const struct extent &operand : *operands)
        need_extent("cuDNN", operand, result);
    operands->push_back(result);
    ul_emulate_count_operand(result.begin, result.size_bytes, true);
}

/* Operations in their order; `good` stays false once one was another than it should be. */
struct reader {
    const std::vector<const struct descriptor *> &operations;
    size_t next;
    bool good;
};

static inline const struct descriptor *take(struct reader *reader,
                                            cudnnBackendDescriptorType_t type)
{
    reader->good = reader->good && reader->next < reader->operations.size() &&
                   graph_type(reader->operations[reader->next]) == type;
    return reader->good ? reader->operations[reader->next++] : NULL;
}

static inline struct tensor read(struct reader *reader, const struct descriptor *operation,
                                 cudnnBackendAttributeName_t name)
{
    struct tensor tensor;
    memset(&tensor, 0, sizeof tensor);
    reader->good = reader->good && graph_has(operation, name) &&
                   graph_tensor(graph_one(operation, name), &tensor);
    return tensor;
}

/* The mode of the next one, where that is pointwise; -1: it is not. */
static inline int next_mode(const struct reader *reader)
{
    if (!reader->good || reader->next >= reader->operations.size() ||
        graph_type(reader->operations[reader->next]) !=
            CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
        return -1;
    return graph_word(
        graph_one(reader->operations[reader->next], CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR),
        CUDNN_ATTR_POINTWISE_MODE);
}

struct pointwise {
    struct tensor x, b, condition, y;
    int64_t axis;
};

/* Takes an operation of that mode, computed in that type, with as many operands. */
static inline struct pointwise take_pointwise(struct reader *reader, cudnnPointwiseMode_t mode,
                                              int operands, cudnnDataType_t type = CUDNN_DATA_FLOAT,
                                              bool is_kept = false)
{
    struct pointwise pointwise;
    memset(&pointwise, 0, sizeof pointwise);
    reader->good = reader->good && next_mode(reader) == (int)mode;
    const struct descriptor *operation = take(reader, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    if (operation == NULL)
        return pointwise;
    const struct descriptor *function =
        graph_one(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    pointwise.x = read(reader, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
    pointwise.y = read(reader, operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    if (operands > 1)
        pointwise.b = read(reader, operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    if (operands > 2)
        pointwise.condition = read(reader, operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
    pointwise.axis = graph_int(function, CUDNN_ATTR_POINTWISE_AXIS);
    reader->good = reader->good &&
                   graph_word(function, CUDNN_ATTR_POINTWISE_MATH_PREC) == (int)type &&
                   graph_has(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC) == (operands > 1) &&
                   graph_has(operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC) == (operands > 2) &&
                   (pointwise.y.is_virtual || is_kept);
    return pointwise;
}

static inline struct tensor take_reduction(struct reader *reader, cudnnReduceTensorOp_t mode,
                                           const struct tensor &x)
{
    struct tensor y;
    memset(&y, 0, sizeof y);
    const struct descriptor *operation = take(reader, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    if (operation == NULL)
        return y;
    const struct descriptor *reduction = graph_one(operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
    y = read(reader, operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
    reader->good = reader->good &&
                   graph_word(reduction, CUDNN_ATTR_REDUCTION_OPERATOR) == (int)mode &&
                   graph_word(reduction, CUDNN_ATTR_REDUCTION_COMP_TYPE) == CUDNN_DATA_FLOAT &&
                   read(reader, operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC).uid == x.uid &&
                   y.is_virtual && y.dims[2] == x.dims[2] && y.dims[3] == 1;
    return y;
}

struct product {
    struct tensor a, b, c;
};

static inline struct product take_product(struct reader *reader)
{
    struct product product;
    memset(&product, 0, sizeof product);
    const struct descriptor *operation = take(reader, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    if (operation == NULL)
        return product;
    const struct descriptor *function = graph_one(operation, CUDNN_ATTR_OPERATION_MATMUL_DESC);
    product.a = read(reader, operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC);
    product.b = read(reader, operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
    product.c = read(reader, operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
    const int64_t *a = product.a.dims, *b = product.b.dims, *c = product.c.dims;
    reader->good = reader->good &&
                   graph_word(function, CUDNN_ATTR_MATMUL_COMP_TYPE) == CUDNN_DATA_FLOAT &&
                   a[0] == b[0] && a[0] == c[0] && a[1] % b[1] == 0 && a[1] == c[1] &&
                   a[2] == c[2] && a[3] == b[2] && b[3] == c[3];
    return product;
}

static inline bool broadcasts(const struct tensor &mask, const struct tensor &scores)
{
    bool good = mask.dims[3] == scores.dims[3];
    for (size_t d = 0; d < 3; d++)
        good = good && (mask.dims[d] == 1 || mask.dims[d] == scores.dims[d]);
    return good && !mask.is_virtual && !mask.is_by_value;
}

/* Scores times their scale, and what masks turn them into. */
static inline struct tensor take_scaled(struct reader *reader, const struct tensor &product,
                                        struct tensor *scale, struct tensor masks[MAX_MASKS],
                                        int64_t *mask_count)
{
    struct pointwise step = take_pointwise(reader, CUDNN_POINTWISE_MUL, 2);
    struct tensor scores = step.y;
    *scale = step.b;
    reader->good = reader->good && step.x.uid == product.uid && product.is_virtual &&
                   step.b.is_by_value && step.b.data_type == CUDNN_DATA_FLOAT;
    while (next_mode(reader) == CUDNN_POINTWISE_ADD && *mask_count < MAX_MASKS) {
        step = take_pointwise(reader, CUDNN_POINTWISE_ADD, 2);
        reader->good = reader->good && step.x.uid == scores.uid && broadcasts(step.b, scores);
        masks[(*mask_count)++] = step.b;
        scores = step.y;
    }
    return scores;
}

/* Whether keys after the query are left out, which become `never`. */
static inline bool take_causal(struct reader *reader, struct tensor *scores, struct tensor *never)
{
    if (next_mode(reader) != CUDNN_POINTWISE_GEN_INDEX)
        return false;
    struct pointwise query = take_pointwise(reader, CUDNN_POINTWISE_GEN_INDEX, 1);
    struct pointwise key = take_pointwise(reader, CUDNN_POINTWISE_GEN_INDEX, 1);
    struct pointwise sees = take_pointwise(reader, CUDNN_POINTWISE_CMP_GE, 2, CUDNN_DATA_BOOLEAN);
    struct pointwise step = take_pointwise(reader, CUDNN_POINTWISE_BINARY_SELECT, 3);
    *never = step.b;
    reader->good = reader->good && query.axis == 2 && key.axis == 3 &&
                   query.y.data_type == CUDNN_DATA_INT32 && sees.x.uid == query.y.uid &&
                   sees.b.uid == key.y.uid && sees.y.data_type == CUDNN_DATA_BOOLEAN &&
                   step.x.uid == scores->uid && step.b.is_by_value &&
                   step.condition.uid == sees.y.uid;
    *scores = step.y;
    return true;
}

static inline bool is_half(const struct tensor &tensor, const struct tensor &like)
{
    return tensor.type == like.type && tensor.type != ELEMENT_F32 && !tensor.is_virtual &&
           tensor.align_bytes % 16 == 0;
}

#endif

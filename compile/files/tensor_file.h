/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors in files: numpy's .npy and .npz, and ONNX's TensorProto. A reader fails with UL_IO or
 * UL_INVALID and names the file. */
#ifndef UL_COMPILE_TENSOR_FILE_H
#define UL_COMPILE_TENSOR_FILE_H

#include "ir/tensor.h"

/* tensor_file.c: reads a tensor from .npy or ONNX .pb. */
enum ul_status ul_tensor_read_file(struct ul_arena *arena, const char *path,
                                   const struct ul_tensor **tensor,
                                   struct ul_diag *diag) UL_MUST_CHECK;

/* The same from the bytes of a .npy; `path` names them in messages. */
enum ul_status ul_tensor_read_npy(struct ul_arena *arena, const struct ul_file *file,
                                  const char *path, const struct ul_tensor **tensor,
                                  struct ul_diag *diag) UL_MUST_CHECK;

/* npz.c: the entries of a .npz; they are borrowed from the file, which the caller unmaps. */

struct ul_npz_entry {
    const char *name; /* without ".npy" */
    struct ul_file npy;
    uint32_t crc;
};

enum ul_status ul_npz_list(struct ul_arena *arena, const struct ul_file *file, const char *path,
                           const struct ul_npz_entry **entries, uint32_t *count,
                           struct ul_diag *diag) UL_MUST_CHECK;
/* UL_INVALID where its checksum is wrong. */
enum ul_status ul_npz_read(struct ul_arena *arena, const struct ul_npz_entry *entry,
                           const char *path, const struct ul_tensor **tensor,
                           struct ul_diag *diag) UL_MUST_CHECK;

#endif

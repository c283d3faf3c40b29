/* Hooks of the signal family. */
#ifndef UL_OPS_SIGNAL_H
#define UL_OPS_SIGNAL_H

#include "ir/infer.h"
#include "ir/lower.h"

/* signal_window.c */
enum ul_status ul_infer_window(struct ul_infer *infer);
ul_kx ul_map_hann_window(struct ul_lower *lower, ul_node_id node, uint32_t output,
                         const ul_kx *index);
ul_kx ul_map_hamming_window(struct ul_lower *lower, ul_node_id node, uint32_t output,
                            const ul_kx *index);
ul_kx ul_map_blackman_window(struct ul_lower *lower, ul_node_id node, uint32_t output,
                             const ul_kx *index);
enum ul_status ul_infer_mel_weight_matrix(struct ul_infer *infer);
ul_kx ul_map_mel_weight_matrix(struct ul_lower *lower, ul_node_id node, uint32_t output,
                               const ul_kx *index);

/* signal_dft.c */
enum ul_status ul_infer_dft(struct ul_infer *infer);
enum ul_status ul_infer_stft(struct ul_infer *infer);
void ul_lower_dft(struct ul_lower *lower, ul_node_id node);
void ul_lower_stft(struct ul_lower *lower, ul_node_id node);

/* signal_det.c */
enum ul_status ul_infer_det(struct ul_infer *infer);
void ul_lower_det(struct ul_lower *lower, ul_node_id node);

#endif

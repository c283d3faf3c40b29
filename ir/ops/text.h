/* Hooks of the text family. */
#ifndef UL_OPS_TEXT_H
#define UL_OPS_TEXT_H

#include "ir/lower.h"

enum ul_status ul_text_infer_tfidf(struct ul_infer *infer);
void ul_text_lower_tfidf(struct ul_lower *lower, ul_node_id node);

#endif

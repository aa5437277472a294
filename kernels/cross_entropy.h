/* Cross entropy over rows of logits on a GPU, forward and backward, without a copy of the logits in
 * float32. A C interface, so that C++, C and Python (ctypes) use the same library; CUDA's driver is
 * all that it needs.
 *
 *   logits [rows, classes]     bfloat16, float16 or float32, of any strides
 *     forward    one read      losses, row weights, and what the backward pass needs of a row
 *     backward   one read, one write, which may be over the logits
 *     both       two reads, one write: for rows whose gradient is known to be wanted
 *
 * With x the logits after the soft cap, w the class weights, e the label smoothing, z the weight of
 * the z-loss, K all classes and y a row's label:
 *
 *   lse    = log(sum over c of exp(x[c]))
 *   loss   = (1 - e) w[y] (lse - x[y])  +  e/K sum over c of w[c] (lse - x[c])  +  z lse^2
 *
 * which is torch.nn.functional.cross_entropy's with e and w, and the z-loss of PaLM
 * (arXiv:2204.02311, section 5). Sums are in float32, in an order that does not depend on the run:
 * the same bits come each time. A row whose label is ignore_index has loss, weight and gradient 0,
 * whatever its logits.
 */
#ifndef GAPLESS_KERNELS_CROSS_ENTROPY_H
#define GAPLESS_KERNELS_CROSS_ENTROPY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { GAPLESS_FLOAT32 = 0, GAPLESS_FLOAT16 = 1, GAPLESS_BFLOAT16 = 2 };

/* Pointers are to memory of the device; strides count elements. Start from
 * GAPLESS_CROSS_ENTROPY_INIT. */
typedef struct gapless_cross_entropy {
  size_t size; /* of this structure, as the caller knows it */

  int type; /* of the logits and their gradient */
  int64_t rows;
  int64_t classes; /* that the logits have: of a shard, those of the shard */
  const void* logits;
  int64_t row_stride;
  int64_t class_stride;
  const int64_t* labels; /* [rows]: of all classes, or ignore_index. What is neither is a trap */
  int64_t label_stride;
  int64_t ignore_index;

  const float* class_weights;    /* [total_classes]; NULL: all 1 */
  const float* class_weight_sum; /* one number, where class_weights and label_smoothing are given */
  float label_smoothing;         /* 0: none */
  float z_loss;                  /* 0: none */
  float soft_cap;                /* x = cap tanh(logit / cap); 0: none */

  /* Vocabularies in shards: these logits are classes first_class and on, of total_classes; 0: all
   * there are are these. The four results below are then the shard's (a label in another shard
   * leaves label_logit 0); gapless_cross_entropy_combine makes those of all from them, with which
   * losses and backward go on. */
  int64_t first_class;
  int64_t total_classes;

  /* [rows] each: results of forward, and what backward reads. */
  float* largest; /* max over c of x[c]; of no classes -inf */
  float* others;  /* sum of exp(x[c] - largest) over all c but that of the largest: 1 more makes the
                     sum of the softmax, and would take the last digits where p is near 1 */
  float* label_logit; /* x[y] */
  float* weighted;    /* sum over c of w[c] x[c]; NULL where label_smoothing is 0 */

  /* [rows] each: results of losses. */
  float* losses;
  float* row_weights; /* w[y], or 0 where the label is ignored: what "mean" divides by */

  /* Of backward: the gradient of a row's loss is loss_gradients[row * loss_gradient_stride] /
   * divisor. A stride of 0: of all rows the same; NULL: 1. */
  const float* loss_gradients;
  int64_t loss_gradient_stride;
  const float* divisor; /* one number; NULL: 1 */
  void* gradients;      /* [rows, classes], of the logits' type; may be the logits */
  int64_t gradient_row_stride;
  int64_t gradient_class_stride;
} gapless_cross_entropy;

#define GAPLESS_CROSS_ENTROPY_INIT \
  { sizeof(gapless_cross_entropy) }

/* Each submits work to `stream` (a CUstream or cudaStream_t) of the current context, and returns 0;
 * else an error, which gapless_kernels_last_error() puts into words. */
int gapless_cross_entropy_forward(const gapless_cross_entropy* rows, void* stream);
int gapless_cross_entropy_losses(const gapless_cross_entropy* rows, void* stream);
int gapless_cross_entropy_backward(const gapless_cross_entropy* rows, void* stream);
/* All three, with one launch; not for shards. */
int gapless_cross_entropy_both(const gapless_cross_entropy* rows, void* stream);
/* parts[shard * shard_stride + which * rows + row], which: 0 largest, 1 others, 2 label_logit, 3
 * weighted (where rows->weighted is given), becomes the four results of `rows`. */
int gapless_cross_entropy_combine(const gapless_cross_entropy* rows, const float* parts,
                                  int64_t shards, int64_t shard_stride, void* stream);

/* Of the calling thread; "" before any. */
const char* gapless_kernels_last_error(void);

#ifdef __cplusplus
}
#endif

#endif

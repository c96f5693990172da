/* Features of an image: the steps of a frozen network, means over positions, and a triangular
   matrix that gives all directions the same deviation. With TEACH_FLOAT in floating point, else in
   whole numbers, the same on every machine. */
#include <stddef.h>

#include "layers.h"
#include "teach.h"

#ifdef TEACH_FLOAT
#include <math.h>
#elif defined(__ARM_FEATURE_DSP) && !defined(TEACH_PLAIN)
#define TEACH_DSP
#include <arm_acle.h>
#include <string.h>
#endif

#ifndef TEACH_MEMORY
#define TEACH_MEMORY static
#endif

TEACH_MEMORY teach_value memory[NETWORK_MEMORY];
static teach_term patch[NETWORK_PATCH];
static teach_sum sums[NETWORK_WIDEST];

/* What a convolution sees at one position, in the order of the weights; zero outside the image. */
static void gather(const layer *step, const uint8_t *image, int top, int left) {
    teach_term *at = patch;
    for (int y = top; y < top + step->kernel; ++y) {
        for (int x = left; x < left + step->kernel; ++x) {
            const int place = y * step->width + x;
            if (y < 0 || y >= step->height || x < 0 || x >= step->width) {
                for (int i = 0; i < step->inputs; ++i) {
                    *at++ = 0;
                }
            } else if (step->source == LAYER_NONE) {
                const uint8_t *from = image + place;
                for (int i = 0; i < step->inputs; ++i) {
                    *at++ = (teach_term)(from[i * step->height * step->width] - NETWORK_ZERO);
                }
            } else {
                const teach_value *from = memory + step->source + place * step->inputs;
                for (int i = 0; i < step->inputs; ++i) {
                    *at++ = (teach_term)from[i];
                }
            }
        }
    }
}

#ifdef TEACH_DSP
/* A Cortex-M4 multiplies two pairs at once. Of four bytes it takes the even and the odd ones apart,
   so the patch is brought into this order once, and read for every output. */
static void arrange(int count) {
    for (int i = 0; i + 4 <= count; i += 4) {
        const teach_term second = patch[i + 1];
        patch[i + 1] = patch[i + 2];
        patch[i + 2] = second;
    }
}

static teach_sum product(const teach_weight *weights, int count) {
    const teach_term *terms = patch;
    teach_sum sum = 0;
    for (; count >= 4; count -= 4, weights += 4, terms += 4) {
        uint32_t bytes;
        int16x2_t even, odd;
        memcpy(&bytes, weights, sizeof bytes);
        memcpy(&even, terms, sizeof even);
        memcpy(&odd, terms + 2, sizeof odd);
        sum = __smlad(even, __sxtb16((int8x4_t)bytes), sum);
        sum = __smlad(odd, __sxtb16((int8x4_t)(bytes >> 8 | bytes << 24)), sum);
    }
    for (; count > 0; --count) {
        sum += (teach_sum)*weights++ * *terms++;
    }
    return sum;
}
#else
static void arrange(int count) {
    (void)count;
}

static teach_sum product(const teach_weight *weights, int count) {
    teach_sum sum = 0;
    for (int i = 0; i < count; ++i) {
        sum += (teach_sum)weights[i] * patch[i];
    }
    return sum;
}
#endif

/* A sum as it is kept: not below zero, and in whole numbers at most 255. */
static teach_value kept(const layer *step, int output, teach_sum sum, teach_value added) {
#ifdef TEACH_FLOAT
    (void)step;
    (void)output;
    return fmaxf(sum + added, 0.0f);
#else
    const int64_t value = (int64_t)sum * step->multiplier[output] +
                          (int64_t)added * step->added_multiplier;
    int64_t rounded;
    if (value <= 0) { /* nothing that is negative is shifted: C leaves open what that gives */
        return 0;
    }
    rounded = (value + ((int64_t)1 << (step->shift - 1))) >> step->shift;
    return (teach_value)(rounded < 255 ? rounded : 255);
#endif
}

static void carry_out(const layer *step, const uint8_t *image) {
    const int count = step->kernel * step->kernel * step->inputs;
    teach_value *to = memory + step->target;
    for (int row = 0; row < step->rows; ++row) {
        for (int column = 0; column < step->columns; ++column) {
            const int place = (row * step->columns + column) * step->outputs;
            for (int corner = 0; corner < step->pool * step->pool; ++corner) {
                const int y = row * step->pool + corner / step->pool;
                const int x = column * step->pool + corner % step->pool;
                gather(step, image, y * step->stride - step->padding,
                       x * step->stride - step->padding);
                arrange(count);
                for (int i = 0; i < step->outputs; ++i) {
                    const teach_sum sum = product(step->weights + (size_t)i * count, count) +
                                          step->bias[i];
                    if (corner == 0 || sum > sums[i]) {
                        sums[i] = sum;
                    }
                }
            }
            for (int i = 0; i < step->outputs; ++i) {
                const teach_value added =
                    step->added == LAYER_NONE ? 0 : memory[step->added + place + i];
                to[place + i] = kept(step, i, sums[i], added);
            }
        }
    }
}

#ifdef TEACH_FLOAT
static int16_t whole(float value) {
    return (int16_t)lrintf(fminf(fmaxf(value, -32767.0f), 32767.0f));
}
#else
/* Half away from zero. */
static int16_t shifted(int64_t value, int shift) {
    const int64_t size = value < 0 ? -value : value;
    int64_t rounded = (size + ((int64_t)1 << (shift - 1))) >> shift;
    rounded = rounded < 32767 ? rounded : 32767;
    return (int16_t)(value < 0 ? -rounded : rounded);
}
#endif

void teach_features(const uint8_t *image, int16_t features[TEACH_FEATURES]) {
    static teach_sum apart[TEACH_FEATURES];
    const layer *last = network_layers + NETWORK_LAYERS - 1;
    const teach_factor *factor = network_factor;
    for (int i = 0; i < NETWORK_LAYERS; ++i) {
        carry_out(network_layers + i, image);
    }
    for (int i = 0; i < TEACH_FEATURES; ++i) {
        const teach_value *from = memory + last->target + i;
        apart[i] = -network_centre[i];
        for (int place = 0; place < last->rows * last->columns; ++place) {
            apart[i] += from[place * TEACH_FEATURES];
        }
    }
    for (int i = 0; i < TEACH_FEATURES; ++i) {
#ifdef TEACH_FLOAT
        float sum = 0.0f;
        for (int j = 0; j <= i; ++j) {
            sum += *factor++ * apart[j];
        }
        features[i] = whole(sum);
#else
        int64_t sum = 0;
        for (int j = 0; j <= i; ++j) {
            sum += (int64_t)*factor++ * apart[j];
        }
        features[i] = shifted(sum, network_shift[i]);
#endif
    }
}
